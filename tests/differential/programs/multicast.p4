// SPDX-License-Identifier: Apache-2.0
// Multicast groups: of one and of several ports, and groups that don't exist; egress tells port and instance.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> group; bit<8> a; bit<16> rid; bit<16> port; bit<8> kind; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            s.mcast_grp = (bit<16>)h.subject.group;
            if (h.subject.a == 0x13) { mark_to_drop(s); }
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            h.subject.rid = s.egress_rid;
            h.subject.port = (bit<16>)s.egress_port;
            h.subject.kind = (bit<8>)s.instance_type;
            if (s.egress_rid == 77) { mark_to_drop(s); }
            h.subject.a = h.subject.a + 1;
        }
    }
}

#include "include/rest.p4"
