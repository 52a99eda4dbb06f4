// SPDX-License-Identifier: Apache-2.0
// Fields from 1 to 33 bits that share bytes: reading, writing, wrapping.
#include "include/base.p4"

header subject_t {
    bit<1> a;
    bit<2> b;
    bit<3> c;
    bit<5> d;
    bit<7> e;
    bit<9> f;
    bit<13> g;
    bit<11> i;
    bit<31> j;
    bit<33> k;
    bit<17> l;
    bit<4> n;
}
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.a = ~h.subject.a;
            h.subject.b = h.subject.b + (bit<2>)h.subject.c;
            h.subject.d = h.subject.d - 3;
            h.subject.f = h.subject.f ^ (bit<9>)h.subject.g;
            h.subject.j = h.subject.j + (bit<31>)h.subject.k;
            h.subject.k = h.subject.k * 5;
            h.subject.l = h.subject.l << 3;
            h.subject.i = (h.subject.i >> 2) | (bit<11>)h.subject.e;
            h.subject.n = h.subject.n & 0xa;
        }
    }
}

#include "include/rest.p4"
