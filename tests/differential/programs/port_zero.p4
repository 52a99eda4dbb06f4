// SPDX-License-Identifier: Apache-2.0
// Port 0 like any other: packets come from it, leave through it, and are copied to it.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> kind; bit<16> from; bit<16> to; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.from = (bit<16>)s.ingress_port;
            if (h.subject.kind[1:0] == 1) { s.egress_spec = 0; }
            if (h.subject.kind[1:0] == 2) { s.mcast_grp = 1; }
            if (h.subject.kind[1:0] == 3) { clone(CloneType.I2E, 1); }
        }
    }
}

EGRESS {
    apply { if (h.subject.isValid()) { h.subject.to = (bit<16>)s.egress_port; } }
}

#include "include/rest.p4"
