// SPDX-License-Identifier: Apache-2.0
// Frames that go through ingress several times: changes to headers are lost, listed metadata stays.
#include "include/base.p4"

header subject_t { bit<8> times; bit<8> a; bit<8> r1; bit<8> r2; bit<16> r3; }
HEADERS
struct metadata_t {
    @field_list(1)
    bit<8> round;
    bit<8> lost;
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.a = h.subject.a + 1;
            m.lost = m.lost + 1;
            if (m.round < (bit<8>)h.subject.times[1:0]) {
                m.round = m.round + 1;
                resubmit_preserving_field_list(1);
            } else {
                h.subject.r1 = m.round + (m.lost << 4);
                h.subject.r2 = (bit<8>)s.instance_type;
                h.subject.r3 = (bit<16>)s.packet_length;
            }
        }
    }
}

#include "include/rest.p4"
