// SPDX-License-Identifier: Apache-2.0
// Congestion as a virtual queue: a two-rate three-colour meter (RFC 2698) per egress port, run in ingress.
// Under congestion droppable slices are dropped or trimmed, each message within its budget, unless their job is within its
// share of the port; what a job sends beyond its share waits behind the others.

@id(0x14000001)
meter(PORTS, MeterType.bytes) virtual_queue;

// What fills it, but for what follows trees (multicasts and sums): the controller lays these where links have room.
@id(0x12000004)
counter(PORTS, CounterType.packets_and_bytes) routed;

control Congestion(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Trimming() trimming;

    // Lowest drop precedence that yellow and red drop at this port (precedence 0 is protected whatever they say),
    // and the lowest queue class whose packets fill the virtual queue.
    drop_precedence_t yellow_from = 7;
    drop_precedence_t red_from = 1;
    queue_class_t metered_from = 0;

    // Red drops at least what yellow drops.
    @action_restriction("red <= yellow; red != 0")
    @id(0x01000012)
    action set_policy(queue_class_t lowest_metered_class, drop_precedence_t yellow, drop_precedence_t red,
                      bit<1> to_fabric) {
        metered_from = lowest_metered_class;
        yellow_from = yellow;
        red_from = red;
        meta.to_fabric = to_fabric;
    }

    @entry_restriction("egress_port != 0; egress_port != 511")
    @id(0x02000006)
    table port_policies {
        key = {
            meta.egress_port: exact @name("egress_port");
        }
        actions = { set_policy; }
        const default_action = set_policy(0, 7, 1, 0);
        size = PORTS;
    }

    // A job's share of a port where several jobs meet: a meter of the share's rate.
    Color job_color = Color.RED;
    bool has_share = false;
    queue_class_t excess_class = BEST_EFFORT;
    @id(0x15000001)
    direct_meter<Color>(MeterType.bytes) share_meter;

    @id(0x01000013)
    action set_share(queue_class_t queue_class_of_excess) {
        share_meter.read(job_color);
        has_share = true;
        excess_class = queue_class_of_excess;
    }

    @id(0x01000014)
    action no_share() { }

    @entry_restriction("job_index != 0; egress_port != 0; egress_port != 511")
    @id(0x0200000D)
    table job_shares {
        key = {
            meta.job_index: exact @name("job_index");
            meta.egress_port: exact @name("egress_port");
        }
        actions = { set_share; @defaultonly no_share; }
        const default_action = no_share();
        meters = share_meter;
        size = JOB_SHARES;
    }

    // How much of a message's budget this switch may take, by its place on the path. Over all hops that a message's slices
    // may take the parts add up to the budget at most.
    @id(0x01000015)
    action whole() { meta.share = hdr.gradlane.budget; }

    @id(0x01000016)
    action rest_of_half() { meta.share = hdr.gradlane.budget - (hdr.gradlane.budget >> 1); }

    @id(0x01000017)
    action half() { meta.share = hdr.gradlane.budget >> 1; }

    @id(0x01000018)
    action quarter() { meta.share = hdr.gradlane.budget >> 2; }

    @id(0x01000019)
    action eighth() { meta.share = hdr.gradlane.budget >> 3; }

    @id(0x0100001A)
    action sixteenth() { meta.share = hdr.gradlane.budget >> 4; }

    @id(0x0100001B)
    action nothing() { meta.share = 0; }

    @id(0x0200000E)
    table budget_shares {
        key = {
            meta.from_fabric: exact @name("from_fabric");
            meta.to_fabric: exact @name("to_fabric");
        }
        actions = { whole; rest_of_half; half; quarter; eighth; sixteenth; nothing; }
        const default_action = nothing();
        size = 4;
    }

    // A slot holds the pair (message id, drops so far).
    @id(0x16000001)
    register<bit<64>>(BUDGET_SLOTS) budgets;

    // Whether the message has budget left, which is then one slice less; otherwise the reason says why not.
    action take_from_budget(out bool taken) {
        bit<32> slot = (meta.slot_base + (hdr.gradlane.message & meta.slot_mask)) & (BUDGET_SLOTS - 1);
        bit<16> share = meta.share < meta.max_share ? meta.share : meta.max_share;
        bit<64> pair;
        taken = false;
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
                taken = true;
                budgets.write(slot, hdr.gradlane.message ++ (drops + 1));
            }
        }
    }

    apply {
        port_policies.apply();
        if (meta.gradient) {
            job_shares.apply();
            budget_shares.apply();
        }
        if (meta.queue_class >= metered_from) {
            virtual_queue.execute_meter((bit<32>)meta.egress_port, meta.color);
            if (!meta.gradient || !IS_SUM(hdr.gradlane)) {
                routed.count((bit<32>)meta.egress_port);
            }
        }
        if (meta.color == Color.GREEN || !meta.gradient) {
            return;
        }
        // Control messages are few and must not wait; whatever else a job sends beyond its share gives way to others.
        if (has_share && job_color != Color.GREEN && meta.queue_class > excess_class
            && meta.queue_class != CONTROL_CLASS) {
            meta.queue_class = excess_class;
        }
        // Other kinds are not what the budget is about, whatever tags the fabric has given them.
        if (hdr.gradlane.kind != KIND_DATA || meta.drop_precedence == PROTECTED
            || (meta.color == Color.YELLOW && meta.drop_precedence < yellow_from)
            || (meta.color == Color.RED && meta.drop_precedence < red_from)) {
            return;
        }
        if (has_share && job_color == Color.GREEN) {
            meta.reason = Reason.WITHIN_SHARE;
            return;
        }
        bool taken;
        take_from_budget(taken);
        if (!taken) {
            return;
        }
        if (meta.trim) {
            meta.reason = meta.color == Color.RED ? Reason.TRIMMED_RED : Reason.TRIMMED_YELLOW;
            trimming.apply(hdr, meta);
            truncate(hdr.ipv4.isValid() ? TRIMMED_IPV4_BYTES : TRIMMED_IPV6_BYTES);
        } else {
            meta.reason = meta.color == Color.RED ? Reason.DROPPED_RED : Reason.DROPPED_YELLOW;
            meta.drop = true;
        }
    }
}

// A copy of a multicast fills the virtual queue of its port, too, as it leaves. Its slices are never droppable.
control MulticastQueue(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Congested() congested;

    apply {
        virtual_queue.execute_meter((bit<32>)standard_metadata.egress_port, meta.color);
        congested.apply(hdr, meta.color);
    }
}
