// SPDX-License-Identifier: Apache-2.0
// Shifts by distances up to 255, beyond most widths, of unsigned, signed and wide fields.
#include "include/base.p4"

header subject_t { bit<8> distance; bit<8> a; bit<32> b; int<16> c; int<64> d; bit<96> e; bit<5> f; bit<3> g; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.a = h.subject.a << h.subject.distance;
            h.subject.b = (h.subject.b >> h.subject.distance) + (h.subject.b << (h.subject.distance & 31));
            h.subject.c = h.subject.c >> h.subject.distance;
            h.subject.d = (h.subject.d >> (h.subject.distance & 63)) ^ (h.subject.d << h.subject.distance);
            h.subject.e = h.subject.e << (h.subject.distance & 127);
            h.subject.f = h.subject.f >> h.subject.g;
            h.subject.g = h.subject.g << h.subject.f[1:0];
        }
    }
}

#include "include/rest.p4"
