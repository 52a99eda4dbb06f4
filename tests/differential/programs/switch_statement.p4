// SPDX-License-Identifier: Apache-2.0
// switch over the action that a table ran and over a value, with fall through and default.
#include "include/base.p4"

header subject_t {
    bit<8> a;
    bit<8> b;
    bit<8> r1;
    bit<8> r2;
}
HEADERS
NO_METADATA

INGRESS {
    action low() { h.subject.r1 = 1; }
    action high(bit<8> v) { h.subject.r1 = v; }
    action none() { }
    table kinds {
        key = { h.subject.a: exact; }
        actions = { low; high; none; }
        default_action = none();
        size = 64;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            switch (kinds.apply().action_run) {
                low: { h.subject.r2 = 10; }
                high: { h.subject.r2 = h.subject.r1 + 1; }
                default: { h.subject.r2 = 99; }
            }
            switch (h.subject.b) {
                1: { h.subject.r1 = 0x11; }
                2:
                3: { h.subject.r1 = 0x23; }
                default: { h.subject.r2 = h.subject.r2 + 1; }
            }
        }
    }
}

#include "include/rest.p4"
