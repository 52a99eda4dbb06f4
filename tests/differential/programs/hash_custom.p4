// SPDX-License-Identifier: Apache-2.0
// The customisable CRCs with the parameters that they start with.
#include "include/base.p4"

header subject_t { bit<32> a; bit<16> b; bit<8> c; bit<16> r1; bit<32> r2; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            hash(h.subject.r1, HashAlgorithm.crc16_custom, 16w0, { h.subject.a, h.subject.b, h.subject.c }, 32w65536);
            hash(h.subject.r2, HashAlgorithm.crc32_custom, 32w0, { h.subject.a, h.subject.b, h.subject.c }, 64w0x100000000);
        }
    }
}

#include "include/rest.p4"
