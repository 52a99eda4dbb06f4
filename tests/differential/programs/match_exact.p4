// SPDX-License-Identifier: Apache-2.0
// Exact keys: one wide field, and several fields of odd widths together.
#include "include/base.p4"

header subject_t { bit<128> wide; bit<9> a; bit<3> b; bit<20> c; bit<8> r1; bit<8> r2; }
HEADERS
NO_METADATA

INGRESS {
    action first(bit<8> v) { h.subject.r1 = v; }
    action second(bit<8> v) { h.subject.r2 = v; }
    action miss() { h.subject.r2 = 0xff; }
    table by_wide {
        key = { h.subject.wide: exact; }
        actions = { first; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    table by_several {
        key = { h.subject.a: exact; h.subject.b: exact; h.subject.c: exact; }
        actions = { second; miss; }
        default_action = miss();
        size = 64;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { by_wide.apply(); by_several.apply(); }
    }
}

#include "include/rest.p4"
