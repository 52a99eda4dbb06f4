// SPDX-License-Identifier: Apache-2.0
// Entries of every match kind that come, change and go between frames, and default entries that change, with counters.
#include "include/base.p4"

header subject_t { bit<8> a; bit<16> b; bit<8> c; bit<8> d; bit<8> e; bit<8> r1; bit<8> r2; bit<8> r3; bit<8> r4; bit<8> r5; }
HEADERS
NO_METADATA

INGRESS {
    direct_counter(CounterType.packets_and_bytes) hits1;
    direct_counter(CounterType.packets) hits3;
    action set1(bit<8> v) { h.subject.r1 = v; }
    action set2(bit<8> v) { h.subject.r2 = v; }
    action set3(bit<8> v) { h.subject.r3 = v; }
    action set4(bit<8> v) { h.subject.r4 = v; }
    action set5(bit<8> v) { h.subject.r5 = v; }
    action gone() { mark_to_drop(s); }
    table by_value { key = { h.subject.a: exact; } actions = { set1; NoAction; } default_action = set1(0x11); counters = hits1; size = 16; }
    table by_prefix { key = { h.subject.b: lpm; } actions = { set2; gone; NoAction; } default_action = set2(0x22); size = 16; }
    table by_mask { key = { h.subject.c: ternary; } actions = { set3; gone; NoAction; } default_action = NoAction(); counters = hits3; size = 16; }
    table by_range { key = { h.subject.d: range; } actions = { set4; NoAction; } size = 16; }
    table by_choice { key = { h.subject.e: optional; h.subject.a: optional; } actions = { set5; NoAction; } size = 16; }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            by_value.apply();
            by_prefix.apply();
            by_mask.apply();
            by_range.apply();
            by_choice.apply();
        }
    }
}

#include "include/rest.p4"
