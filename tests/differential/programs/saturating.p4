// SPDX-License-Identifier: Apache-2.0
// Saturating addition and subtraction, unsigned and signed.
#include "include/base.p4"

header subject_t {
    bit<8> a;
    bit<8> b;
    bit<16> c;
    bit<16> d;
    bit<32> e;
    bit<32> f;
    int<8> g;
    int<8> i;
    int<32> j;
    int<32> k;
    bit<8> r1;
    bit<8> r2;
    bit<16> r3;
    bit<16> r4;
    bit<32> r5;
    bit<32> r6;
    int<8> r7;
    int<8> r8;
    int<32> r9;
    int<32> r10;
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
            h.subject.r7 = h.subject.g |+| h.subject.i;
            h.subject.r8 = h.subject.g |-| h.subject.i;
            h.subject.r9 = h.subject.j |+| h.subject.k;
            h.subject.r10 = h.subject.j |-| h.subject.k;
        }
    }
}

#include "include/rest.p4"
