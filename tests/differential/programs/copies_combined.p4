// SPDX-License-Identifier: Apache-2.0
// Clones, resubmission, recirculation, multicast and drops asked for together: which takes part and which wins.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> how; bit<8> again; bit<8> group; bit<8> r1; bit<8> r2; bit<16> r3; bit<16> r4; bit<16> r5; }
HEADERS
struct metadata_t {
    @field_list(1)
    bit<8> round;
    @field_list(1, 3)
    bit<8> trail;
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            m.trail = m.trail + 1;
            if (h.subject.how[0:0] == 1) { clone_preserving_field_list(CloneType.I2E, 1, 3); }
            if (h.subject.how[1:1] == 1) { s.mcast_grp = (bit<16>)h.subject.group; }
            if (h.subject.how[2:2] == 1) { mark_to_drop(s); }
            if (h.subject.how[3:3] == 1 && m.round == 0) { m.round = 1; resubmit_preserving_field_list(1); }
            h.subject.r5 = (bit<16>)s.packet_length;
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            h.subject.r1 = (h.subject.r1 << 4) | (bit<8>)s.instance_type;
            h.subject.r2 = m.trail + (m.round << 4);
            h.subject.r3 = s.egress_rid;
            h.subject.r4 = (bit<16>)s.packet_length;
            // One replica of several, so that no two copies race for a port.
            if (s.instance_type == 0 || s.egress_rid == 4) {
                if (h.subject.how[4:4] == 1) { clone_preserving_field_list(CloneType.E2E, 2, 3); }
                if (h.subject.how[5:5] == 1) { mark_to_drop(s); }
                if (s.instance_type == 0 && h.subject.how[6:6] == 1 && h.subject.again[0:0] == 1) {
                    h.subject.again = h.subject.again - 1;
                    recirculate_preserving_field_list(1);
                }
            }
        }
    }
}

#include "include/rest.p4"
