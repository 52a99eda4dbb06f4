// SPDX-License-Identifier: Apache-2.0
// Every decision is counted once, by job, reason and the packet's two tags. A trace collects what it meets on its way.

control Telemetry(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // Index: job index ++ reason ++ queue class ++ drop precedence.
    @id(0x12000001)
    counter(DECISIONS, CounterType.packets_and_bytes) decisions;

    // What the gradient policy took, by what the host had stated. Index: layer (at most 63) ++ magnitude[7:4].
    @id(0x12000002)
    counter(DROP_MAP_CELLS, CounterType.packets_and_bytes) drop_map;

    apply {
        decisions.count((bit<32>)(meta.job_index ++ meta.reason ++ meta.queue_class ++ meta.drop_precedence));
        if (meta.reason == Reason.DROPPED_YELLOW || meta.reason == Reason.DROPPED_RED
            || meta.reason == Reason.TRIMMED_YELLOW || meta.reason == Reason.TRIMMED_RED) {
            bit<6> layer = hdr.gradlane.layer > 63 ? 6w63 : hdr.gradlane.layer[5:0];
            drop_map.count((bit<32>)(layer ++ hdr.gradlane.magnitude[7:4]));
        }
    }
}

control Tracing(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.hop.setValid();
        hdr.hop.switch_id = meta.switch_id;
        hdr.hop.ingress_port = (bit<16>)standard_metadata.ingress_port;
        hdr.hop.egress_port = (bit<16>)standard_metadata.egress_port;
        hdr.hop.queue_class = (bit<4>)meta.queue_class;
        hdr.hop.color = (bit<4>)(bit<2>)meta.color;
        hdr.hop.depth_unit = DEPTH_UNIT;
        hdr.hop.depth = (bit<32>)standard_metadata.deq_qdepth;
        hdr.hop.wait = standard_metadata.deq_timedelta * 1000;
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
