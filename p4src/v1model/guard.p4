// SPDX-License-Identifier: Apache-2.0
// A gradient packet enters only where the controller placed its sender: port, source address and job must agree.

control Guard(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) permitted;

    action permit(bit<32> slot_base, bit<32> slot_mask, bit<16> max_share) {
        meta.slot_base = slot_base;
        meta.slot_mask = slot_mask;
        meta.max_share = max_share;
        permitted.count();
    }

    action refuse() {
        meta.drop = true;
        meta.reason = Reason.DROPPED_GUARD;
        permitted.count();
    }

    @id(0x02000001)
    table senders {
        key = {
            standard_metadata.ingress_port: exact @name("ingress_port");
            hdr.ipv4.src: exact @name("source");
            hdr.gradlane.job: exact @name("job");
        }
        actions = { permit; @defaultonly refuse; }
        const default_action = refuse();
        counters = permitted;
        size = 1024;
    }

    apply {
        senders.apply();
    }
}
