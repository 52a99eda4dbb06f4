// SPDX-License-Identifier: Apache-2.0
// Fields from 65 to 512 bits, not all of whole bytes: copies, arithmetic, shifts, comparisons.
#include "include/base.p4"

header subject_t {
    bit<65> a;
    bit<7> gap;
    bit<128> b;
    bit<128> c;
    bit<129> d;
    bit<7> equal;
    bit<256> e;
    bit<512> f;
}
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.equal = 0;
            if (h.subject.b == h.subject.c) { h.subject.equal = 1; }
            if (h.subject.b < h.subject.c) { h.subject.equal = h.subject.equal | 2; }
            if (h.subject.e >= (bit<256>)h.subject.b) { h.subject.equal = h.subject.equal | 4; }
            h.subject.a = h.subject.a + 1;
            h.subject.b = h.subject.b - h.subject.c;
            h.subject.c = h.subject.c ^ (bit<128>)h.subject.e;
            h.subject.d = h.subject.d << 65;
            h.subject.e = (h.subject.e >> 100) | (bit<256>)h.subject.a;
            h.subject.f = ~h.subject.f + (bit<512>)h.subject.e;
        }
    }
}

#include "include/rest.p4"
