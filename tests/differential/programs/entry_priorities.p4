// SPDX-License-Identifier: Apache-2.0
// Entries of the program with priorities of their own: the larger wins, unlike their order.
#include "include/base.p4"

header subject_t { bit<8> a; bit<8> r1; bit<8> r2; }
HEADERS
NO_METADATA

INGRESS {
    action set1(bit<8> v) { h.subject.r1 = v; }
    action set2(bit<8> v) { h.subject.r2 = v; }
    table larger_first {
        key = { h.subject.a: ternary; }
        actions = { set1; NoAction; }
        default_action = NoAction();
        largest_priority_wins = true;
        entries = {
            const priority = 10: 0x10 &&& 0xf0: set1(1);
            const priority = 30: 0x11 &&& 0x1f: set1(2);
            const priority = 20: _: set1(3);
        }
    }
    table smaller_first {
        key = { h.subject.a: ternary; }
        actions = { set2; NoAction; }
        default_action = NoAction();
        largest_priority_wins = false;
        entries = {
            const priority = 10: 0x10 &&& 0xf0: set2(1);
            const priority = 30: 0x11 &&& 0x1f: set2(2);
            const priority = 20: _: set2(3);
        }
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { larger_first.apply(); smaller_first.apply(); }
    }
}

#include "include/rest.p4"
