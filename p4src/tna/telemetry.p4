// SPDX-License-Identifier: Apache-2.0
// Every decision is counted once, by job, reason and the packet's two tags.

// What both indices have of the job and of the layer. It is known early, and then it has to be: the last stages are full.
control Counted(in headers_t hdr, in metadata_t meta, inout counted_t counted) {
    @hidden
    action cap_layer() {
        counted.layer = min(hdr.gradlane.layer, DROP_MAP_LAST_LAYER);
    }

    apply {
        cap_layer();
        counted.job = meta.job_index[3:0];
        if (meta.job_index[7:4] != 0) {
            counted.job = LAST_COUNTED_JOB;
        }
    }
}

control Telemetry(inout headers_t hdr, inout metadata_t meta, in counted_t counted) {
    // Index: job index (LAST_COUNTED_JOB: and all beyond it) ++ reason ++ queue class ++ drop precedence.
    @id(0x12000001)
    Counter<bit<64>, bit<15>>(DECISIONS, CounterType_t.PACKETS_AND_BYTES) decisions;

    // What the gradient policy took, by what the host had stated. Index: layer ++ magnitude[7:4].
    @id(0x12000002)
    Counter<bit<64>, bit<13>>(DROP_MAP_CELLS, CounterType_t.PACKETS_AND_BYTES) drop_map;

    Hash<bit<15>>(HashAlgorithm_t.IDENTITY) decision;
    Hash<bit<13>>(HashAlgorithm_t.IDENTITY) cell;

    apply {
        decisions.count(decision.get({ counted.job, meta.reason, meta.queue_class, meta.drop_precedence }));
        if (meta.reason == Reason.DROPPED_YELLOW || meta.reason == Reason.DROPPED_RED
            || meta.reason == Reason.TRIMMED_YELLOW || meta.reason == Reason.TRIMMED_RED) {
            drop_map.count(cell.get({ counted.layer[8:0], hdr.gradlane.magnitude[7:4] }));
        }
    }
}
