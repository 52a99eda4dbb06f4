// SPDX-License-Identifier: Apache-2.0
// Frames that go through the switch several times, changed: headers added, listed metadata, length, ingress port.
#define OWN_EGRESS
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> times; bit<8> r1; bit<8> r2; bit<16> r3; bit<16> r4; }
header trail_t { bit<8> port; bit<8> kind; }
struct headers_t { ethernet_t ethernet; subject_t subject; trail_t trail; trail_t added; }
struct metadata_t {
    @field_list(2)
    bit<8> round;
    bit<8> lost;
}

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(s.instance_type) { 4: trail; default: accept; }
    }
    state trail {
        packet.extract(h.trail);
        transition accept;
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            m.lost = m.lost + 1;
            h.subject.r1 = m.round + (m.lost << 4);
            h.subject.r3 = (bit<16>)s.packet_length;
            h.subject.r4 = (bit<16>)s.ingress_port;
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            h.subject.r2 = (bit<8>)s.instance_type;
            if (m.round < (bit<8>)h.subject.times[1:0]) {
                m.round = m.round + 1;
                h.added.setValid();
                h.added.port = (bit<8>)s.egress_port;
                h.added.kind = m.round;
                recirculate_preserving_field_list(2);
            }
        }
    }
}

#include "include/rest.p4"
