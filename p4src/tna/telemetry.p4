// SPDX-License-Identifier: Apache-2.0
// Every decision is counted once, by job, reason and the packet's two tags.

control Telemetry(inout headers_t hdr, inout metadata_t meta) {
    // Index: job index ++ reason ++ queue class ++ drop precedence.
    @id(0x12000001)
    Counter<bit<64>, bit<15>>(DECISIONS, CounterType_t.PACKETS_AND_BYTES) decisions;

    // What the gradient policy took, by what the host had stated. Index: layer ++ magnitude[7:4].
    @id(0x12000002)
    Counter<bit<64>, bit<10>>(DROP_MAP_CELLS, CounterType_t.PACKETS_AND_BYTES) drop_map;

    Hash<bit<15>>(HashAlgorithm_t.IDENTITY) decision;
    Hash<bit<10>>(HashAlgorithm_t.IDENTITY) cell;

    bit<16> layer = 0;

    @hidden
    action cap_layer() {
        layer = min(hdr.gradlane.layer, DROP_MAP_LAST_LAYER);
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
