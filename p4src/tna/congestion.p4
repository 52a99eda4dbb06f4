// SPDX-License-Identifier: Apache-2.0
// Congestion as a virtual queue: a two-rate three-colour meter (RFC 2698) per egress port, run in ingress.
// Under congestion droppable slices are dropped or trimmed, each message within its budget, unless their job is within its
// share of the port; what a job sends beyond its share waits behind the others.

// A message, and how many of its slices this switch has taken.
struct slot_t {
    bit<32> message;
    bit<32> drops;
}

control Congestion(inout headers_t hdr, inout metadata_t meta,
                   inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    @id(0x14000001)
    Meter<port_t>(PORTS, MeterType_t.BYTES) virtual_queue;

    // Lowest drop precedence that yellow and red drop at this port (precedence 0 is protected whatever they say),
    // and the lowest queue class whose packets fill the virtual queue.
    drop_precedence_t yellow_from = 7;
    drop_precedence_t red_from = 1;
    queue_class_t metered_from = 0;

    @id(0x01000012)
    action set_policy(queue_class_t lowest_metered_class, drop_precedence_t yellow, drop_precedence_t red,
                      bit<1> to_fabric) {
        metered_from = lowest_metered_class;
        yellow_from = yellow;
        red_from = red;
        meta.to_fabric = to_fabric;
    }

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
    DirectMeter(MeterType_t.BYTES) share_meter;

    @id(0x01000013)
    action set_share(queue_class_t queue_class_of_excess) {
        job_color = (Color)share_meter.execute();
        has_share = true;
        excess_class = queue_class_of_excess;
    }

    @id(0x01000014)
    action no_share() { }

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

    bit<16> half_budget = hdr.gradlane.budget >> 1;

    // How much of a message's budget this switch may take, by its place on the path. Over all hops that a message's slices
    // may take the parts add up to the budget at most.
    @id(0x01000015)
    action whole() { meta.share = hdr.gradlane.budget; }

    @id(0x01000016)
    action rest_of_half() { meta.share = hdr.gradlane.budget - half_budget; }

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

    // Whether one number of three bits reaches another: tables of constants, as no gateway compares two fields.
    action fill() {
        meta.color = (Color)virtual_queue.execute(meta.egress_port);
    }

    @hidden
    table metered {
        key = {
            metered_from: exact;
            meta.queue_class: range;
        }
        actions = { fill; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (0, 0 .. 7): fill();
            (1, 1 .. 7): fill();
            (2, 2 .. 7): fill();
            (3, 3 .. 7): fill();
            (4, 4 .. 7): fill();
            (5, 5 .. 7): fill();
            (6, 6 .. 7): fill();
            (7, 7 .. 7): fill();
        }
    }

    action demote() {
        meta.queue_class = excess_class;
    }

    @hidden
    table demoted {
        key = {
            excess_class: exact;
            meta.queue_class: range;
        }
        actions = { demote; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (0, 1 .. 6): demote();
            (1, 2 .. 6): demote();
            (2, 3 .. 6): demote();
            (3, 4 .. 6): demote();
            (4, 5 .. 6): demote();
            (5, 6 .. 6): demote();
        }
    }

    @hidden
    table droppable {
        key = {
            meta.color: exact;
            yellow_from: ternary;
            red_from: ternary;
            meta.drop_precedence: range;
        }
        actions = { NoAction; }
        const default_action = NoAction();
        const entries = {
            (Color.YELLOW, 0, _, 1 .. 7): NoAction();
            (Color.YELLOW, 1, _, 1 .. 7): NoAction();
            (Color.YELLOW, 2, _, 2 .. 7): NoAction();
            (Color.YELLOW, 3, _, 3 .. 7): NoAction();
            (Color.YELLOW, 4, _, 4 .. 7): NoAction();
            (Color.YELLOW, 5, _, 5 .. 7): NoAction();
            (Color.YELLOW, 6, _, 6 .. 7): NoAction();
            (Color.YELLOW, 7, _, 7 .. 7): NoAction();
            (Color.RED, _, 0, 1 .. 7): NoAction();
            (Color.RED, _, 1, 1 .. 7): NoAction();
            (Color.RED, _, 2, 2 .. 7): NoAction();
            (Color.RED, _, 3, 3 .. 7): NoAction();
            (Color.RED, _, 4, 4 .. 7): NoAction();
            (Color.RED, _, 5, 5 .. 7): NoAction();
            (Color.RED, _, 6, 6 .. 7): NoAction();
            (Color.RED, _, 7, 7 .. 7): NoAction();
        }
    }

    // A stateful ALU makes two comparisons, so the pair (message id, drops so far) has a guard before it: the newest
    // message that a slot has seen. Serial number arithmetic (RFC 1982): the upper half of the distances is the past. A
    // slot that nobody has used yet has no age.
    @id(0x16000001)
    Register<bit<32>, bit<16>>(BUDGET_SLOTS) newest;

    RegisterAction<bit<32>, bit<16>, bit<1>>(newest) claim = {
        void apply(inout bit<32> value, out bit<1> stale) {
            stale = 0;
            if (value != 0 && (int<32>)(hdr.gradlane.message - value) < 0) {
                stale = 1;
            } else {
                value = hdr.gradlane.message;
            }
        }
    };

    // What may take nothing claims nothing.
    RegisterAction<bit<32>, bit<16>, bit<1>>(newest) look = {
        void apply(inout bit<32> value, out bit<1> stale) {
            stale = 0;
            if (value != 0 && (int<32>)(hdr.gradlane.message - value) < 0) {
                stale = 1;
            }
        }
    };

    bit<32> limit = 0;

    @id(0x16000002)
    Register<slot_t, bit<16>>(BUDGET_SLOTS) budgets;

    RegisterAction<slot_t, bit<16>, bit<1>>(budgets) take = {
        void apply(inout slot_t pair, out bit<1> taken) {
            taken = 0;
            if (pair.message != hdr.gradlane.message) {
                pair.message = hdr.gradlane.message;
                pair.drops = 1;
                taken = 1;
            } else if (pair.drops < limit) {
                pair.drops = pair.drops + 1;
                taken = 1;
            }
        }
    };

    apply {
        port_policies.apply();
        if (meta.gradient) {
            meta.slot_mask[15:0] = meta.slot_mask[15:0] & hdr.gradlane.message[15:0];
            job_shares.apply();
            budget_shares.apply();
            meta.slot_base[15:0] = meta.slot_base[15:0] + meta.slot_mask[15:0];
        }
        metered.apply();
        if (meta.color != Color.GREEN && meta.gradient) {
            // Control messages are few and must not wait; whatever else a job sends beyond its share gives way to others.
            if (has_share && job_color != Color.GREEN) {
                demoted.apply();
            }
            // Other kinds are not what the budget is about, whatever tags the fabric has given them.
            if (hdr.gradlane.kind == KIND_DATA) { if (droppable.apply().hit) {
                if (has_share && job_color == Color.GREEN) {
                    meta.reason = Reason.WITHIN_SHARE;
                } else {
                    bit<1> stale;
                    bit<1> taken = 0;
                    limit = (bit<32>)min(meta.share, meta.max_share);
                    if (meta.share == 0 || meta.max_share == 0) {
                        stale = look.execute(meta.slot_base[15:0]);
                    } else {
                        stale = claim.execute(meta.slot_base[15:0]);
                        if (stale == 0) {
                            taken = take.execute(meta.slot_base[15:0]);
                        }
                    }
                    if (stale == 1) {
                        meta.reason = Reason.STALE_MESSAGE;
                    } else if (taken == 0) {
                        meta.reason = Reason.BUDGET_SPENT;
                    } else if (meta.trim) {
                        meta.reason = Reason.TRIMMED_RED;
                        if (meta.color == Color.YELLOW) {
                            meta.reason = Reason.TRIMMED_YELLOW;
                        }
                        // A mirrored copy, which its session cuts off behind the Gradlane header, goes instead.
                        ig_dprsr_md.mirror_type = MIRROR_TRIMMED;
                        meta.queue_class = CONTROL_CLASS;
                        meta.drop_precedence = PROTECTED;
                    } else {
                        meta.reason = Reason.DROPPED_RED;
                        if (meta.color == Color.YELLOW) {
                            meta.reason = Reason.DROPPED_YELLOW;
                        }
                        meta.drop = true;
                    }
                }
            } }
        }
    }
}
