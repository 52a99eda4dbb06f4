// SPDX-License-Identifier: Apache-2.0
// Range keys: overlapping, of one value, to the field's end, together with an exact and a ternary field.
#include "include/base.p4"

header subject_t { bit<16> a; bit<8> b; bit<4> c; bit<4> d; bit<8> r; }
HEADERS
NO_METADATA

INGRESS {
    action found(bit<8> v) { h.subject.r = v; }
    table rules {
        key = { h.subject.a: range; h.subject.b: range; h.subject.c: exact; h.subject.d: ternary; }
        actions = { found; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { rules.apply(); }
    }
}

#include "include/rest.p4"
