// SPDX-License-Identifier: Apache-2.0
// Tables of a few hundred entries that overlap: longest prefixes, masks by priority, ranges by priority.
#include "include/base.p4"

header subject_t { bit<32> a; bit<24> b; bit<12> c; bit<4> d; bit<16> e; bit<16> r1; bit<16> r2; bit<16> r3; }
HEADERS
NO_METADATA

INGRESS {
    action set1(bit<16> v) { h.subject.r1 = v; }
    action set2(bit<16> v) { h.subject.r2 = v; }
    action set3(bit<16> v) { h.subject.r3 = v; }
    table prefixes {
        key = { h.subject.a: lpm; }
        actions = { set1; NoAction; }
        default_action = NoAction();
        size = 256;
    }
    table masks {
        key = { h.subject.b: ternary; h.subject.c: ternary; h.subject.d: exact; }
        actions = { set2; NoAction; }
        default_action = NoAction();
        size = 256;
    }
    table ranges {
        key = { h.subject.e: range; h.subject.c: range; h.subject.d: ternary; }
        actions = { set3; NoAction; }
        default_action = NoAction();
        size = 256;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { prefixes.apply(); masks.apply(); ranges.apply(); }
    }
}

#include "include/rest.p4"
