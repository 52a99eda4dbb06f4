// SPDX-License-Identifier: Apache-2.0
// Ranges over keys of 72 and 128 bits, and of one bit, with other kinds beside them, from the control plane and constant.
#include "include/base.p4"

header subject_t { bit<72> a; bit<128> b; bit<1> c; bit<7> d; bit<8> r1; bit<8> r2; }
HEADERS
NO_METADATA

INGRESS {
    action first(bit<8> v) { h.subject.r1 = v; }
    action second(bit<8> v) { h.subject.r2 = v; }
    table wide { key = { h.subject.a: range; h.subject.b: range; } actions = { first; NoAction; } size = 16; }
    table narrow {
        key = { h.subject.c: range; h.subject.b: ternary; h.subject.d: range; }
        actions = { second; NoAction; }
        const entries = {
            (1..1, _, 10..20): second(1);
            (0..1, 0xff &&& 0xff, 15..127): second(2);
            (_, _, 30..30): second(3);
            (_, 0 &&& 0xffff000000000000000000000000, _): second(4);
        }
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { wide.apply(); narrow.apply(); }
    }
}

#include "include/rest.p4"
