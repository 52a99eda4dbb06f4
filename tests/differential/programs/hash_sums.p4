// SPDX-License-Identifier: Apache-2.0
// The ones' complement sum, exclusive or and identity as hashes.
#include "include/base.p4"

header subject_t { bit<32> a; bit<16> b; bit<24> c; bit<8> d; bit<16> r1; bit<16> r2; bit<16> r3; bit<32> r4; bit<16> r5; bit<16> r6; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            hash(h.subject.r1, HashAlgorithm.csum16, 16w0, { h.subject.a, h.subject.b }, 32w65536);
            hash(h.subject.r2, HashAlgorithm.xor16, 16w0, { h.subject.a, h.subject.b }, 32w65536);
            hash(h.subject.r3, HashAlgorithm.identity, 16w0, { h.subject.b }, 32w65536);
            hash(h.subject.r4, HashAlgorithm.identity, 32w5, { h.subject.a, h.subject.b }, 32w1000);
            hash(h.subject.r5, HashAlgorithm.csum16, 16w0, { h.subject.c }, 32w65536);
            hash(h.subject.r6, HashAlgorithm.xor16, 16w1, { h.subject.c, h.subject.d, h.subject.b }, 32w500);
        }
    }
}

#include "include/rest.p4"
