// SPDX-License-Identifier: Apache-2.0
// What the controller has to answer: address resolution, expired packets, and what is addressed to the switch itself.

control Punting(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t ig_intr_md) {
    // By reason. A cell without a configuration lets everything through.
    @id(0x14000002)
    Meter<bit<5>>(PUNT_CELLS, MeterType_t.PACKETS) punt_rates;

    apply {
        // Not all at once: the header is one container.
        hdr.packet_in.setValid();
        hdr.packet_in.reserved = 0;
        hdr.packet_in.reason = 0;
        hdr.packet_in.ingress_port = ig_intr_md.ingress_port;
        Color color = (Color)punt_rates.execute((bit<5>)meta.reason);
        if (color != Color.GREEN) {
            meta.drop = true;
            meta.reason = Reason.DROPPED_PUNT_RATE;
        } else {
            hdr.packet_in.reason = (bit<5>)meta.reason;
            meta.egress_port = CPU_PORT;
        }
    }
}
