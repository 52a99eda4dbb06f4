// SPDX-License-Identifier: Apache-2.0
// Every decision is counted once, by reason and by the packet's two tags.

control Telemetry(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // Index: reason ++ queue class ++ drop precedence.
    @id(0x12000001)
    counter(DECISIONS, CounterType.packets_and_bytes) decisions;

    // What the gradient policy dropped, by what the host had stated. Index: layer (at most 63) ++ magnitude[7:4].
    @id(0x12000002)
    counter(DROP_MAP_CELLS, CounterType.packets_and_bytes) drop_map;

    apply {
        decisions.count((bit<32>)(meta.reason ++ meta.queue_class ++ meta.drop_precedence));
        if (meta.reason == Reason.DROPPED_YELLOW || meta.reason == Reason.DROPPED_RED) {
            bit<6> layer = hdr.gradlane.layer > 63 ? 6w63 : hdr.gradlane.layer[5:0];
            drop_map.count((bit<32>)(layer ++ hdr.gradlane.magnitude[7:4]));
        }
    }
}
