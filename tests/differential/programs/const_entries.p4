// SPDX-License-Identifier: Apache-2.0
// Constant entries of every kind of key, in the order that the program gives them.
#include "include/base.p4"

header subject_t { bit<8> a; bit<32> b; bit<8> c; bit<8> d; bit<8> r1; bit<8> r2; bit<8> r3; bit<8> r4; }
HEADERS
NO_METADATA

INGRESS {
    action set1(bit<8> v) { h.subject.r1 = v; }
    action set2(bit<8> v) { h.subject.r2 = v; }
    action set3(bit<8> v) { h.subject.r3 = v; }
    action set4(bit<8> v) { h.subject.r4 = v; }
    table exact_entries {
        key = { h.subject.a: exact; }
        actions = { set1; }
        default_action = set1(0);
        const entries = { 1: set1(11); 2: set1(12); 0xff: set1(13); }
    }
    table lpm_entries {
        key = { h.subject.b: lpm; }
        actions = { set2; }
        default_action = set2(0);
        const entries = { 0x0a000000 &&& 0xff000000: set2(1); 0x0a010000 &&& 0xffff0000: set2(2); 0x0a010203: set2(3); _: set2(4); }
    }
    table ternary_entries {
        key = { h.subject.c: ternary; h.subject.d: ternary; }
        actions = { set3; }
        default_action = set3(0);
        const entries = { (0x10 &&& 0xf0, _): set3(1); (0x11, 0x22): set3(2); (_, 0x80 &&& 0x80): set3(3); (_, 0x22): set3(4); }
    }
    table range_entries {
        key = { h.subject.c: range; h.subject.a: exact; }
        actions = { set4; }
        default_action = set4(0);
        const entries = { (0x10..0x20, 1): set4(1); (0x18..0xff, 1): set4(2); (7, 2): set4(3); (_, 0xff): set4(4); }
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            exact_entries.apply();
            lpm_entries.apply();
            ternary_entries.apply();
            range_entries.apply();
        }
    }
}

#include "include/rest.p4"
