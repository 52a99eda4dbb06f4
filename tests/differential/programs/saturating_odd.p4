// SPDX-License-Identifier: Apache-2.0
// Saturating arithmetic at widths that no machine word has.
#include "include/base.p4"

header subject_t { bit<7> a; bit<7> b; int<5> c; int<5> d; bit<33> e; bit<33> f; int<65> g; int<65> i; bit<20> j; bit<1> k; bit<1> l; bit<6> gap; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.a = h.subject.a |+| h.subject.b;
            h.subject.b = h.subject.b |-| 9;
            h.subject.c = h.subject.c |+| h.subject.d;
            h.subject.d = h.subject.d |-| h.subject.c;
            h.subject.e = h.subject.e |-| h.subject.f;
            h.subject.f = h.subject.f |+| (bit<33>)h.subject.j;
            h.subject.g = h.subject.g |+| h.subject.i;
            h.subject.i = h.subject.i |-| h.subject.g;
            h.subject.k = h.subject.k |+| h.subject.l;
        }
    }
}

#include "include/rest.p4"
