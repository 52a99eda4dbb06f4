// SPDX-License-Identifier: Apache-2.0
// CRC-16 and CRC-32 over fields of odd widths, with a base and a bound.
#include "include/base.p4"

header subject_t { bit<32> a; bit<16> b; bit<3> c; bit<13> d; bit<48> e; bit<16> r1; bit<32> r2; bit<16> r3; bit<32> r4; bit<32> r5; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            hash(h.subject.r1, HashAlgorithm.crc16, 16w0, { h.subject.a, h.subject.b }, 32w65536);
            hash(h.subject.r2, HashAlgorithm.crc32, 32w0, { h.subject.a, h.subject.b }, 64w0x100000000);
            hash(h.subject.r3, HashAlgorithm.crc16, 16w7, { h.subject.c, h.subject.d, h.subject.e }, 16w1000);
            hash(h.subject.r4, HashAlgorithm.crc32, 32w100, { h.subject.c, h.subject.d, 8w3 }, 32w16);
            hash(h.subject.r5, HashAlgorithm.crc32, 32w0, { h.subject.c, h.subject.e, h.subject.a[7:2] }, 64w0x100000000);
        }
    }
}

#include "include/rest.p4"
