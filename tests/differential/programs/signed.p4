// SPDX-License-Identifier: Apache-2.0
// Signed integers: wrapping, comparisons, arithmetic shifts, products, negation.
#include "include/base.p4"

header subject_t {
    int<8> a;
    int<8> b;
    int<16> c;
    int<16> d;
    int<33> e;
    int<33> f;
    bit<6> order;
    int<8> r1;
    int<8> r2;
    int<16> r3;
    int<16> r4;
    int<64> r5;
    bit<8> distance;
}
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.order = 0;
            if (h.subject.a < h.subject.b) { h.subject.order = h.subject.order | 1; }
            if (h.subject.c >= h.subject.d) { h.subject.order = h.subject.order | 2; }
            if (h.subject.e > h.subject.f) { h.subject.order = h.subject.order | 4; }
            if (h.subject.e <= 0) { h.subject.order = h.subject.order | 8; }
            h.subject.r1 = h.subject.a + h.subject.b;
            h.subject.r2 = -h.subject.a;
            h.subject.r3 = h.subject.c * h.subject.d;
            h.subject.r4 = h.subject.c >> h.subject.distance;
            h.subject.r5 = (int<64>)h.subject.e - (int<64>)h.subject.f;
            h.subject.e = h.subject.e >> 5;
            h.subject.f = h.subject.f << 4;
        }
    }
}

#include "include/rest.p4"
