// SPDX-License-Identifier: Apache-2.0
// Every decision is counted once, by job, reason and the packet's two tags. A trace collects what it meets on its way.

control Telemetry(inout headers_t hdr, inout metadata_t meta) {
    // Index: job index ++ reason ++ queue class ++ drop precedence.
    @id(0x12000001)
    Counter<bit<64>, bit<15>>(DECISIONS, CounterType_t.PACKETS_AND_BYTES) decisions;

    // What the gradient policy took, by what the host had stated. Index: layer (at most 63) ++ magnitude[7:4].
    @id(0x12000002)
    Counter<bit<64>, bit<10>>(DROP_MAP_CELLS, CounterType_t.PACKETS_AND_BYTES) drop_map;

    Hash<bit<15>>(HashAlgorithm_t.IDENTITY) decision;
    Hash<bit<10>>(HashAlgorithm_t.IDENTITY) cell;

    bit<16> layer = 0;

    @hidden
    action cap_layer() {
        layer = min(hdr.gradlane.layer, 63);
    }

    apply {
        cap_layer();
        decisions.count(decision.get({ meta.job_index, meta.reason, meta.queue_class, meta.drop_precedence }));
        if (meta.reason == Reason.DROPPED_YELLOW || meta.reason == Reason.DROPPED_RED
            || meta.reason == Reason.TRIMMED_YELLOW || meta.reason == Reason.TRIMMED_RED) {
            drop_map.count(cell.get({ layer[5:0], hdr.gradlane.magnitude[7:4] }));
        }
    }
}

control Tracing(inout headers_t hdr, in egress_metadata_t meta, in egress_intrinsic_metadata_t eg_intr_md) {
    apply {
        hdr.hop.setValid();
        hdr.hop.switch_id = meta.bridged.switch_id;
        hdr.hop.ingress_port = (bit<16>)meta.bridged.ingress_port;
        hdr.hop.egress_port = (bit<16>)eg_intr_md.egress_port;
        hdr.hop.queue_class = (bit<4>)meta.bridged.queue_class;
        if (meta.bridged.color == Color.RED) {
            hdr.hop.color = 2;
        } else if (meta.bridged.color == Color.YELLOW) {
            hdr.hop.color = 1;
        }
        hdr.hop.depth_unit = DEPTH_UNIT;
        hdr.hop.depth = (bit<32>)eg_intr_md.deq_qdepth;
        hdr.hop.wait = (bit<32>)eg_intr_md.deq_timedelta;
        hdr.gradlane.length = hdr.gradlane.length + HOP_BYTES;
        hdr.udp.length = hdr.udp.length + HOP_BYTES;
        hdr.udp.checksum = 0;
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.total_length = hdr.ipv4.total_length + HOP_BYTES;
        } else {
            hdr.ipv6.payload_length = hdr.ipv6.payload_length + HOP_BYTES;
        }
    }
}
