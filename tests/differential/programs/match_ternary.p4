// SPDX-License-Identifier: Apache-2.0
// Ternary keys with overlapping entries: the highest priority wins, whatever the order of writing.
#include "include/base.p4"

header subject_t { bit<16> a; bit<8> b; bit<70> c; bit<2> gap; bit<8> r; }
HEADERS
NO_METADATA

INGRESS {
    action found(bit<8> v) { h.subject.r = v; }
    table rules {
        key = { h.subject.a: ternary; h.subject.b: ternary; h.subject.c: ternary; }
        actions = { found; NoAction; }
        default_action = found(0xff);
        size = 64;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { rules.apply(); }
    }
}

#include "include/rest.p4"
