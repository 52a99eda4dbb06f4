// SPDX-License-Identifier: Apache-2.0
// Casts between widths and between bit, int and bool, with and without sign extension.
#include "include/base.p4"

header subject_t {
    bit<8> a;
    int<8> b;
    bit<16> c;
    int<16> d;
    bit<48> e;
    bit<16> r1;
    int<16> r2;
    bit<4> r3;
    int<4> r4;
    bit<32> r5;
    int<32> r6;
    bit<1> r7;
    bit<7> r8;
    bit<128> r9;
}
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            bool odd = h.subject.a[0:0] == 1;
            h.subject.r1 = (bit<16>)h.subject.a;
            h.subject.r2 = (int<16>)h.subject.b;
            h.subject.r3 = (bit<4>)h.subject.c;
            h.subject.r4 = (int<4>)h.subject.d;
            h.subject.r5 = (bit<32>)(int<32>)h.subject.b;
            h.subject.r6 = (int<32>)(bit<32>)(bit<8>)h.subject.b;
            h.subject.r7 = (bit<1>)odd;
            h.subject.r8 = (bit<7>)(bit<16>)h.subject.d;
            h.subject.r9 = (bit<128>)h.subject.e + (bit<128>)(bit<16>)(int<16>)h.subject.b;
        }
    }
}

#include "include/rest.p4"
