// SPDX-License-Identifier: Apache-2.0
// What a table tells of its lookup: hit and miss in conditions, one table behind another.
#include "include/base.p4"

header subject_t {
    bit<16> a;
    bit<16> b;
    bit<8> r1;
    bit<8> r2;
}
HEADERS
NO_METADATA

INGRESS {
    action first_found(bit<8> v) { h.subject.r1 = v; }
    action second_found(bit<8> v) { h.subject.r2 = v; }
    table first {
        key = { h.subject.a: exact; }
        actions = { first_found; NoAction; }
        default_action = NoAction();
        size = 32;
    }
    table second {
        key = { h.subject.b: exact; h.subject.r1: exact; }
        actions = { second_found; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 32;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (first.apply().hit) {
                if (second.apply().miss) { h.subject.r2 = 0xee; }
            } else {
                h.subject.r1 = 0xff;
            }
        }
    }
}

#include "include/rest.p4"
