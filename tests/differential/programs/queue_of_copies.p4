// SPDX-License-Identifier: Apache-2.0
// Clones of egress, recirculated frames and replicas are queued on their own, after the frame that they come from left.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> op; bit<8> kind; bit<8> rid; bit<8> times; bit<8> first; bit<32> length; }
HEADERS
struct metadata_t {
    @field_list(1)
    bit<32> left;
    @field_list(1)
    bit<32> waited;
    @field_list(1)
    bit<8> copy;
}

const bit<32> SECOND = 1000000;

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.first = 0;
            if (s.enq_timestamp == 0 && s.deq_timedelta == 0 && s.egress_global_timestamp == 0) {
                h.subject.first = 1;  // also when it has been recirculated
            }
            if (m.copy == 0 && h.subject.op[7:6] == 3) { s.mcast_grp = (bit<16>)h.subject.op[3:0]; }
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            h.subject.kind = (bit<8>)s.instance_type;
            h.subject.rid = (bit<8>)s.egress_rid;
            h.subject.length = s.packet_length;
            h.subject.times = 0;
            if (s.deq_timedelta < SECOND) { h.subject.times[0:0] = 1; }
            if ((bit<32>)s.egress_global_timestamp - s.enq_timestamp < SECOND) { h.subject.times[1:1] = 1; }
            if (s.enq_qdepth < 8 && s.deq_qdepth < 8) { h.subject.times[2:2] = 1; }
            if (m.copy == 0) {
                m.copy = 1;
                m.left = (bit<32>)s.egress_global_timestamp;
                m.waited = s.deq_timedelta;
                if (h.subject.op[7:6] == 1) {
                    clone_preserving_field_list(CloneType.E2E, (bit<32>)h.subject.op[3:0], 1);
                } else if (h.subject.op[7:6] == 2) {
                    recirculate_preserving_field_list(1);
                }
            } else {
                if (s.enq_timestamp - m.left < SECOND) { h.subject.times[3:3] = 1; }
                if (m.waited < SECOND) { h.subject.times[4:4] = 1; }
            }
        }
    }
}

#include "include/rest.p4"
