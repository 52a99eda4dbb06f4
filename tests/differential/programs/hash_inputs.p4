// SPDX-License-Identifier: Apache-2.0
// Hashes of wide, signed, bool and constant inputs, of metadata and of expressions, and with bounds of one and of zero.
#include "include/base.p4"

header subject_t { bit<128> a; int<16> b; bool c; bit<7> d; bit<16> r1; bit<32> r2; bit<16> r3; bit<8> r4; bit<32> r5; bit<16> r6; }
HEADERS
struct metadata_t { bit<20> x; bool y; }

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            m.x = (bit<20>)h.subject.a[31:0];
            m.y = h.subject.d > 64;
            hash(h.subject.r1, HashAlgorithm.crc16, 16w0, { h.subject.a, h.subject.d }, 32w65536);
            hash(h.subject.r2, HashAlgorithm.crc32, 32w0, { h.subject.b, 16w0xbeef, h.subject.a }, 64w0x100000000);
            hash(h.subject.r3, HashAlgorithm.csum16, 16w0, { m.x, 4w3, h.subject.a }, 32w65536);
            hash(h.subject.r4, HashAlgorithm.crc32, 8w0xf0, { h.subject.a }, 16w100);
            hash(h.subject.r5, HashAlgorithm.crc32, 32w7, { h.subject.a[63:0] + 1, h.subject.d ++ 1w0 }, 32w1);
            hash(h.subject.r6, HashAlgorithm.crc16, 16w9, { s.ingress_port, h.subject.d }, 16w0);
        }
    }
}

#include "include/rest.p4"
