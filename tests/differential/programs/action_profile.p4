// SPDX-License-Identifier: Apache-2.0
// Entries that name members of an action profile, which several of them share.
#include "include/base.p4"

header subject_t { bit<8> a; bit<16> b; bit<8> r1; bit<8> r2; }
HEADERS
NO_METADATA

INGRESS {
    action_profile(16) members;
    action set1(bit<8> v) { h.subject.r1 = v; }
    action clear() { h.subject.r1 = 0; h.subject.r2 = 0; }
    table by_a {
        key = { h.subject.a: exact; }
        actions = { set1; clear; NoAction; }
        implementation = members;
        size = 16;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (!by_a.apply().hit) { h.subject.r2 = 0xff; }
        }
    }
}

#include "include/rest.p4"
