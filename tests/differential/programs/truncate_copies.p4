// SPDX-License-Identifier: Apache-2.0
// truncate together with clones, resubmission, recirculation and multicast: which copies are cut, and what lengths they see.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> how; bit<8> limit; bit<8> kind; bit<16> first; bit<16> last; }
HEADERS
struct metadata_t { @field_list(1) bit<8> round; }

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.first = (bit<16>)s.packet_length;
            bit<32> limit = (bit<32>)h.subject.limit[6:0] + 14;
            if (h.subject.how[0:0] == 1) { truncate(limit); }
            if (h.subject.how[1:1] == 1 && s.instance_type == 0) { clone_preserving_field_list(CloneType.I2E, 1, 1); }
            if (h.subject.how[2:2] == 1 && m.round == 0) { m.round = 1; resubmit_preserving_field_list(1); }
            if (h.subject.how[3:3] == 1) { s.mcast_grp = 1; }
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            h.subject.kind = (bit<8>)s.instance_type;
            h.subject.last = (bit<16>)s.packet_length;
            if (h.subject.how[4:4] == 1 && s.instance_type == 0) { truncate((bit<32>)h.subject.limit + 5); }
            if (h.subject.how[5:5] == 1 && s.instance_type == 0) { clone_preserving_field_list(CloneType.E2E, 2, 1); }
            if (h.subject.how[6:6] == 1 && s.instance_type == 0 && m.round < 2) { m.round = 2; h.subject.how = 0; recirculate_preserving_field_list(1); }
        }
    }
}

#include "include/rest.p4"
