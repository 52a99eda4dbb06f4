// SPDX-License-Identifier: Apache-2.0
// exit from an action, from ingress and from egress, and return: what runs after each, and what still leaves.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t {
    bit<8> a;
    bit<8> r1;
    bit<8> r2;
    bit<8> r3;
}
HEADERS
NO_METADATA

INGRESS {
    action leave() { h.subject.r1 = 1; exit; }
    action early() { h.subject.r1 = 2; if (h.subject.a[7:7] == 1) { return; } h.subject.r2 = 2; }
    action stay() { h.subject.r1 = 3; }
    table ways {
        key = { h.subject.a: ternary; }
        actions = { leave; early; stay; }
        const default_action = stay();
        const entries = { 0x01 &&& 0x0f: leave(); 0x02 &&& 0x0f: early(); }
    }
    apply {
        FORWARD
        if (!h.subject.isValid()) { return; }
        ways.apply();
        if (h.subject.a == 0x33) { exit; }
        if (h.subject.a == 0x44) { return; }
        h.subject.r2 = h.subject.r2 + 0x10;
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            h.subject.r3 = 0x40;
            if (h.subject.a[6:6] == 1) { exit; }
            h.subject.r3 = 0x80;
        }
    }
}

#include "include/rest.p4"
