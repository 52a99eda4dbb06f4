// SPDX-License-Identifier: Apache-2.0
// Verifying checksums, under a condition: the error is told in the metadata, and nothing is dropped by itself.
#define OWN_VERIFY
#include "include/base.p4"

header subject_t { bit<8> kind; bit<8> r; bit<32> a; bit<24> b; bit<8> c; bit<16> sum; bit<16> crc; }
HEADERS
NO_METADATA

VERIFY {
    apply {
        verify_checksum(h.subject.isValid() && h.subject.kind == 1,
            { h.subject.kind, h.subject.c, h.subject.a, h.subject.b, 8w0 }, h.subject.sum, HashAlgorithm.csum16);
        verify_checksum(h.subject.isValid() && h.subject.kind == 2,
            { h.subject.a, h.subject.b, h.subject.c }, h.subject.crc, HashAlgorithm.crc16);
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) { h.subject.r = (bit<8>)s.checksum_error; }
    }
}

#include "include/rest.p4"
