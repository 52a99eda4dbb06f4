// SPDX-License-Identifier: Apache-2.0
// Dropping in ingress and in egress, what runs after it, and an egress port set after it.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> how; bit<8> r1; bit<16> r2; }
HEADERS
NO_METADATA

INGRESS {
    counter(4, CounterType.packets) seen;
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (h.subject.how == 1) { mark_to_drop(s); }
            if (h.subject.how == 2) { mark_to_drop(s); s.egress_spec = 3; }
            if (h.subject.how == 3) { s.egress_spec = 511; }
            if (h.subject.how == 4) { mark_to_drop(s); exit; }
            if (h.subject.how == 5) { s.egress_spec = 0; }
            seen.count(0);
        }
    }
}

EGRESS {
    counter(4, CounterType.packets) left;
    apply {
        if (h.subject.isValid()) {
            h.subject.r2 = (bit<16>)s.egress_spec;
            if (h.subject.how == 6) { mark_to_drop(s); }
            if (h.subject.how == 7) { mark_to_drop(s); s.egress_spec = 2; }
            if (h.subject.how == 8) { s.egress_spec = 511; }
            if (h.subject.how == 9) { s.egress_spec = 4; }
            left.count(1);
            h.subject.r1 = 0x5a;
        }
    }
}

#include "include/rest.p4"
