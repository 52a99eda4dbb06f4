// SPDX-License-Identifier: Apache-2.0
// Saturating arithmetic at 64 and 128 bits, where the sum needs a bit more than a machine word.
#include "include/base.p4"

header subject_t {
    bit<64> a;
    bit<64> b;
    int<64> c;
    int<64> d;
    bit<128> e;
    bit<128> f;
    bit<64> r1;
    bit<64> r2;
    int<64> r3;
    int<64> r4;
    bit<128> r5;
    bit<128> r6;
}
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.r1 = h.subject.a |+| h.subject.b;
            h.subject.r2 = h.subject.a |-| h.subject.b;
            h.subject.r3 = h.subject.c |+| h.subject.d;
            h.subject.r4 = h.subject.c |-| h.subject.d;
            h.subject.r5 = h.subject.e |+| h.subject.f;
            h.subject.r6 = h.subject.e |-| h.subject.f;
        }
    }
}

#include "include/rest.p4"
