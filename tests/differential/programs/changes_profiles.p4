// SPDX-License-Identifier: Apache-2.0
// Members and groups of action profiles that change between frames, while entries use them; entries that change over.
#include "include/base.p4"

header subject_t { bit<8> a; bit<16> b; bit<8> c; bit<8> r1; bit<8> r2; bit<8> r3; }
HEADERS
NO_METADATA

INGRESS {
    action_profile(16) plain;
    action_selector(HashAlgorithm.crc16, 16, 14) chosen;
    action set1(bit<8> v) { h.subject.r1 = v; }
    action set2(bit<8> v) { h.subject.r2 = v; }
    action gone() { mark_to_drop(s); }
    table profiled { key = { h.subject.a: exact; } actions = { set1; gone; NoAction; } implementation = plain; size = 16; }
    table selected { key = { h.subject.a: exact; h.subject.b: selector; h.subject.c: selector; } actions = { set2; gone; NoAction; } implementation = chosen; size = 16; }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (profiled.apply().hit) { h.subject.r3 = 1; }
            if (!selected.apply().hit) { h.subject.r3 = h.subject.r3 | 2; }
        }
    }
}

#include "include/rest.p4"
