// SPDX-License-Identifier: Apache-2.0
// Multicast groups and clone sessions that come, change and go between frames.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> how; bit<8> session; bit<8> group; bit<16> rid; bit<8> kind; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (h.subject.how[0:0] == 1) { clone(CloneType.I2E, (bit<32>)h.subject.session); }
            if (h.subject.how[1:1] == 1) { s.mcast_grp = (bit<16>)h.subject.group; }
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) { h.subject.rid = s.egress_rid; h.subject.kind = (bit<8>)s.instance_type; }
    }
}

#include "include/rest.p4"
