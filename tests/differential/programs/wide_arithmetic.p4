// SPDX-License-Identifier: Apache-2.0
// Operators at 96 and 128 bits: products that overflow, borrows across words, shifts by a field.
#include "include/base.p4"

header subject_t {
    bit<8> distance;
    bit<128> a;
    bit<128> b;
    bit<96> c;
    bit<96> d;
    bit<128> r1;
    bit<128> r2;
    bit<96> r3;
}
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.r1 = h.subject.a * h.subject.b;
            h.subject.r2 = (h.subject.a - h.subject.b) ^ (h.subject.b << h.subject.distance);
            h.subject.r3 = (h.subject.c & ~h.subject.d) + (h.subject.d >> h.subject.distance);
        }
    }
}

#include "include/rest.p4"
