// SPDX-License-Identifier: Apache-2.0
// A trace collects what it meets on its way: the record of this switch goes in front of those of the switches before.
// The UDP checksum follows in checksums.p4.

control Tracing(inout headers_t hdr, in bit<16> switch_id, in port_t ingress_port, in port_t egress_port,
                in queue_class_t queue_class, in Color color, in bit<32> depth, in bit<32> wait) {
    apply {
        hdr.hop.setValid();
        hdr.hop.switch_id = switch_id;
        hdr.hop.ingress_port = (bit<16>)ingress_port;
        hdr.hop.egress_port = (bit<16>)egress_port;
        hdr.hop.queue_class = (bit<4>)queue_class;
        // On every target the same numbers.
        if (color == Color.RED) {
            hdr.hop.color = 2;
        } else if (color == Color.YELLOW) {
            hdr.hop.color = 1;
        } else {
            hdr.hop.color = 0;
        }
        hdr.hop.depth_unit = DEPTH_UNIT;
        hdr.hop.depth = depth;
        hdr.hop.wait = wait;
        hdr.gradlane.length = hdr.gradlane.length + HOP_BYTES;
        hdr.udp.length = hdr.udp.length + HOP_BYTES;
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.total_length = hdr.ipv4.total_length + HOP_BYTES;
        } else {
            hdr.ipv6.payload_length = hdr.ipv6.payload_length + HOP_BYTES;
        }
    }
}
