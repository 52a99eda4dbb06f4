// SPDX-License-Identifier: Apache-2.0
// Optional keys: present, absent, all absent.
#include "include/base.p4"

header subject_t { bit<16> a; bit<8> b; bit<8> r; }
HEADERS
NO_METADATA

INGRESS {
    action found(bit<8> v) { h.subject.r = v; }
    table rules {
        key = { h.subject.a: optional; h.subject.b: optional; }
        actions = { found; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { rules.apply(); }
    }
}

#include "include/rest.p4"
