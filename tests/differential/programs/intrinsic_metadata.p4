// SPDX-License-Identifier: Apache-2.0
// What ingress and egress are told of the frame: ports, length, kind, instance, and what has not been set.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t {
    bit<16> ingress_port;
    bit<32> ingress_length;
    bit<32> ingress_kind;
    bit<16> spec;
    bit<16> egress_port;
    bit<32> egress_length;
    bit<16> rid;
    bit<16> again;
    bit<8> grow;
}
header extra_t { bit<48> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; extra_t extra; }
NO_METADATA

INGRESS {
    apply {
        if (h.subject.isValid()) {
            h.subject.spec = (bit<16>)s.egress_spec;
            h.subject.ingress_port = (bit<16>)s.ingress_port;
            h.subject.ingress_length = s.packet_length;
            h.subject.ingress_kind = s.instance_type;
            h.subject.again = (bit<16>)s.egress_port;
            if (h.subject.grow > 0x7f) { h.extra.setValid(); h.extra.v = 7; }
        }
        FORWARD
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            h.subject.egress_port = (bit<16>)s.egress_port;
            h.subject.egress_length = s.packet_length;
            h.subject.rid = s.egress_rid;
            h.subject.again = h.subject.again + (bit<16>)s.ingress_port;
        }
    }
}

#include "include/rest.p4"
