// SPDX-License-Identifier: Apache-2.0
// Two tables take their actions from one profile, two others from one selector. p4c gives each table actions of its own.
#include "include/base.p4"

header subject_t { bit<8> a; bit<8> b; bit<32> flow; bit<8> r1; bit<8> r2; }
HEADERS
NO_METADATA

INGRESS {
    action_profile(16) members;
    action_selector(HashAlgorithm.crc16, 16, 12) choices;
    action set1(bit<8> v) { h.subject.r1 = v; }
    action set2(bit<8> v) { h.subject.r2 = v; }
    action set_both(bit<8> v, bit<8> w) { h.subject.r1 = v; h.subject.r2 = w; }
    table by_a {
        key = { h.subject.a: exact; }
        actions = { set1; set2; NoAction; }
        implementation = members;
        size = 16;
    }
    table by_b {
        key = { h.subject.b: ternary; }
        actions = { set2; NoAction; set1; }
        implementation = members;
        size = 16;
    }
    table choose_a {
        key = { h.subject.a: exact; h.subject.flow: selector; }
        actions = { set_both; set1; NoAction; }
        implementation = choices;
        size = 16;
    }
    table choose_b {
        key = { h.subject.b: exact; h.subject.flow: selector; }
        actions = { NoAction; set1; set_both; }
        implementation = choices;
        size = 16;
    }
    apply {
        FORWARD
        // Where a table follows another by whether it hit, it is the same for each action: see docs/limitations.md.
        if (h.subject.isValid()) {
            if (by_a.apply().hit) { h.subject.r2 = h.subject.r2 + 1; }
            if (by_b.apply().hit) { h.subject.r1 = h.subject.r1 + 1; }
            if (choose_a.apply().hit) { h.subject.r2 = h.subject.r2 ^ 0x80; }
            if (choose_b.apply().hit) { h.subject.r1 = h.subject.r1 ^ 0x80; }
        }
    }
}

#include "include/rest.p4"
