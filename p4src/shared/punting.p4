// SPDX-License-Identifier: Apache-2.0
// What the controller has to answer: address resolution, expired packets, and what is addressed to the switch itself.

control Punting(inout headers_t hdr, inout metadata_t meta, in port_t ingress_port) {
    // By port and reason, so that no host has a share in another's, nor in that of the links. A cell without a
    // configuration lets everything through.
    @id(0x14000002)
    PACKET_METER(bit<12>, PUNT_CELLS) punt_rates;

    apply {
        // Not all at once: on Tofino the header is one container.
        hdr.packet_in.setValid();
        hdr.packet_in.reserved = 0;
        hdr.packet_in.reason = 0;
        hdr.packet_in.ingress_port = ingress_port;
        Color color = Color.GREEN;
        bit<12> cell = ingress_port ++ ((bit<5>)meta.reason)[2:0];
        EXECUTE_METER(punt_rates, cell, color);
        if (color != Color.GREEN) {
            meta.drop = true;
            meta.reason = Reason.DROPPED_PUNT_RATE;
        } else {
            hdr.packet_in.reason = (bit<5>)meta.reason;
            meta.egress_port = CPU_PORT;
        }
    }
}
