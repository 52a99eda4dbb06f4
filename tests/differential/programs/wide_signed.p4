// SPDX-License-Identifier: Apache-2.0
// Signed integers of 65 to 200 bits: sums, products, comparisons, shifts, casts in both directions.
#include "include/base.p4"

header subject_t { int<65> a; int<65> b; int<128> c; int<128> d; int<200> e; bit<6> order; bit<8> distance; int<16> small; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.order = 0;
            if (h.subject.a < h.subject.b) { h.subject.order = h.subject.order | 1; }
            if (h.subject.c > h.subject.d) { h.subject.order = h.subject.order | 2; }
            if (h.subject.e < 0) { h.subject.order = h.subject.order | 4; }
            h.subject.a = h.subject.a + h.subject.b;
            h.subject.b = -h.subject.b;
            h.subject.e = h.subject.e - (int<200>)h.subject.c;
            h.subject.c = h.subject.c * h.subject.d;
            h.subject.d = h.subject.d >> h.subject.distance;
            h.subject.small = h.subject.small + (int<16>)h.subject.d;
            h.subject.e = h.subject.e ^ (int<200>)h.subject.small;
        }
    }
}

#include "include/rest.p4"
