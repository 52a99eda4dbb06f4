// SPDX-License-Identifier: Apache-2.0
// Tables in egress, keyed by the port that the frame leaves at.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<16> a; bit<8> r; }
HEADERS
NO_METADATA

INGRESS {
    apply { FORWARD }
}

EGRESS {
    action rewrite(bit<48> src, bit<8> v) { h.ethernet.src = src; h.subject.r = v; }
    action drop() { mark_to_drop(s); }
    table ports {
        key = { s.egress_port: exact; h.subject.a: range; }
        actions = { rewrite; drop; NoAction; }
        default_action = NoAction();
        size = 32;
    }
    apply { if (h.subject.isValid()) { ports.apply(); } }
}

#include "include/rest.p4"
