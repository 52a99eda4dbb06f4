// SPDX-License-Identifier: Apache-2.0
// What the controller has to answer: address resolution, expired packets, and what is addressed to the switch itself.

control Punting(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // By reason. A cell without a configuration lets everything through.
    @id(0x14000002)
    meter(PUNT_CELLS, MeterType.packets) punt_rates;

    apply {
        Color color = Color.GREEN;
        punt_rates.execute_meter((bit<32>)(bit<5>)meta.reason, color);
        if (color != Color.GREEN) {
            meta.drop = true;
            meta.reason = Reason.DROPPED_PUNT_RATE;
        } else {
            hdr.packet_in.setValid();
            hdr.packet_in.reserved = 0;
            hdr.packet_in.reason = (bit<5>)meta.reason;
            hdr.packet_in.ingress_port = standard_metadata.ingress_port;
            meta.egress_port = CPU_PORT;
        }
    }
}
