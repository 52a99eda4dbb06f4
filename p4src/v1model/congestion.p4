// SPDX-License-Identifier: Apache-2.0
// Congestion as a virtual queue: a two-rate three-colour meter (RFC 2698) per egress port, run in ingress.
// Under congestion droppable slices are dropped, each message within its budget, and protected ones are ECN-marked.

control Congestion(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    meter(MAX_PORTS, MeterType.bytes) virtual_queue;

    // A slot holds the pair (message id, drops so far).
    register<bit<64>>(BUDGET_SLOTS) budgets;

    // Lowest drop precedence that yellow and red drop at this port (precedence 0 is protected whatever they say),
    // and the lowest queue class whose packets fill the virtual queue.
    drop_precedence_t yellow_from = 7;
    drop_precedence_t red_from = 1;
    queue_class_t metered_from = 0;

    action set_policy(queue_class_t lowest_metered_class, drop_precedence_t yellow, drop_precedence_t red) {
        metered_from = lowest_metered_class;
        yellow_from = yellow;
        red_from = red;
    }

    @id(0x02000006)
    table port_policies {
        key = {
            meta.egress_port: exact @name("egress_port");
        }
        actions = { set_policy; }
        const default_action = set_policy(0, 7, 1);
        size = 64;
    }

    apply {
        port_policies.apply();
        if (meta.queue_class >= metered_from) {
            virtual_queue.execute_meter((bit<32>)meta.egress_port[5:0], meta.color);
        }
        if (meta.color != Color.GREEN && hdr.gradlane.isValid()) {
            bool droppable = meta.drop_precedence != PROTECTED && (
                (meta.color == Color.YELLOW && meta.drop_precedence >= yellow_from)
                || (meta.color == Color.RED && meta.drop_precedence >= red_from));
            if (droppable) {
                // Dropped if its message has budget left; otherwise the reason says why it was let through.
                bit<32> slot = (meta.slot_base + (hdr.gradlane.message & meta.slot_mask)) & (BUDGET_SLOTS - 1);
                bit<16> share = hdr.gradlane.budget < meta.max_share ? hdr.gradlane.budget : meta.max_share;
                bit<64> pair;
                @atomic {
                    budgets.read(pair, slot);
                    // Serial number arithmetic (RFC 1982): the upper half of the distances is the past.
                    bit<32> distance = hdr.gradlane.message - pair[63:32];
                    bit<32> drops = distance == 0 ? pair[31:0] : 0;
                    // A slot that nobody has used yet has no age.
                    if (distance[31:31] == 1 && pair != 0) {
                        meta.reason = Reason.STALE_MESSAGE;
                    } else if (drops >= (bit<32>)share) {
                        meta.reason = Reason.BUDGET_SPENT;
                    } else {
                        meta.drop = true;
                        meta.reason = meta.color == Color.RED ? Reason.DROPPED_RED : Reason.DROPPED_YELLOW;
                        budgets.write(slot, hdr.gradlane.message ++ (drops + 1));
                    }
                }
            }
        }
        if (meta.color != Color.GREEN && hdr.ipv4.ecn != ECN_NOT_CAPABLE) {
            hdr.ipv4.ecn = ECN_CONGESTED;
        }
    }
}
