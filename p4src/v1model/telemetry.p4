// SPDX-License-Identifier: Apache-2.0
// Every decision is counted once, by job, reason and the packet's two tags; every frame that leaves once, where it does.

control Telemetry(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // Index: job index ++ reason ++ queue class ++ drop precedence.
    @id(0x12000001)
    counter(DECISIONS, CounterType.packets_and_bytes) decisions;

    // What the gradient policy took, by what the host had stated. Index: layer ++ magnitude[7:4].
    @id(0x12000002)
    counter(DROP_MAP_CELLS, CounterType.packets_and_bytes) drop_map;

    apply {
        decisions.count((bit<32>)(meta.job_index ++ meta.reason ++ meta.queue_class ++ meta.drop_precedence));
        if (meta.reason == Reason.DROPPED_YELLOW || meta.reason == Reason.DROPPED_RED
            || meta.reason == Reason.TRIMMED_YELLOW || meta.reason == Reason.TRIMMED_RED) {
            bit<16> layer = hdr.gradlane.layer > DROP_MAP_LAST_LAYER ? DROP_MAP_LAST_LAYER : hdr.gradlane.layer;
            drop_map.count((bit<32>)(layer[8:0] ++ hdr.gradlane.magnitude[7:4]));
        }
    }
}

// In egress, so that a multicast counts as often as it has copies, and what a full queue has dropped does not count.
control Departures(in headers_t hdr, in metadata_t meta, in port_t egress_port) {
    // Index: egress port ++ way ++ queue class. A counter adds the bytes that came in. All that leaves has as many but
    // trimmed slices, whose length is known: they have cells of their own.
    @id(0x12000005)
    counter(SENT_CELLS, CounterType.packets_and_bytes) sent;

    apply {
        Way way = Way.PATH;
        if (meta.reason == Reason.TRIMMED_YELLOW || meta.reason == Reason.TRIMMED_RED) {
            way = hdr.ipv4.isValid() ? Way.TRIMMED_IPV4 : Way.TRIMMED_IPV6;
        } else if (meta.multicast || (meta.gradient && IS_SUM(hdr.gradlane))) {
            way = Way.TREE;
        }
        sent.count((bit<32>)(egress_port ++ way ++ meta.queue_class));
    }
}
