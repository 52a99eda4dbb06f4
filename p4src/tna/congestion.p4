// SPDX-License-Identifier: Apache-2.0
// Congestion as a virtual queue: a two-rate three-colour meter (RFC 2698) per egress port, run in ingress.
// Under congestion droppable slices are dropped or trimmed, each message within its budget, unless their job is within its
// share of the port; what a job sends beyond its share waits behind the others.

// A message (the lower half of its number), and how many of its slices this switch has taken.
struct slot_t {
    bit<16> message;
    bit<16> drops;
}

// What holds at a port is looked up as soon as the port is known, before it is known whether the packet may leave.
control Policy(inout metadata_t meta, inout port_policy_t policy, in bit<16> half_budget) {
    // Red drops at least what yellow drops.
    @action_restriction("red <= yellow; red != 0")
    @id(0x01000012)
    action set_policy(queue_class_t lowest_metered_class, drop_precedence_t yellow, drop_precedence_t red,
                      bit<1> to_fabric) {
        policy.metered_from = lowest_metered_class;
        policy.yellow_from = yellow;
        policy.red_from = red;
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

    // How much of a message's budget this switch may take, by its place on the path. Over all hops that a message's slices
    // may take the parts add up to the budget at most.
    // `share` comes with the whole of it.
    @id(0x01000015)
    action whole() { }

    @id(0x01000016)
    action rest_of_half() { meta.share = meta.share - half_budget; }

    @id(0x01000017)
    action half() { meta.share = meta.share >> 1; }

    @id(0x01000018)
    action quarter() { meta.share = meta.share >> 2; }

    @id(0x01000019)
    action eighth() { meta.share = meta.share >> 3; }

    @id(0x0100001A)
    action sixteenth() { meta.share = meta.share >> 4; }

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

    apply {
        port_policies.apply();
        budget_shares.apply();
    }
}

control Congestion(inout headers_t hdr, inout metadata_t meta, inout port_policy_t policy) {
    @id(0x14000001)
    Meter<port_t>(PORTS, MeterType_t.BYTES) virtual_queue;

    // A job's share of a port where several jobs meet: a meter of the share's rate.
    @id(0x15000001)
    DirectMeter(MeterType_t.BYTES) share_meter;

    @id(0x01000013)
    action set_share(queue_class_t queue_class_of_excess) {
        policy.job_color = (Color)share_meter.execute();
        policy.has_share = true;
        policy.excess_class = queue_class_of_excess;
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

    // Whether one number of three bits reaches another: tables of constants, as no gateway compares two fields.
    action fill() {
        meta.color = (Color)virtual_queue.execute(meta.egress_port);
    }

    @hidden
    table metered {
        key = {
            policy.metered_from: exact;
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
        meta.queue_class = policy.excess_class;
    }

    @hidden
    table demoted {
        key = {
            policy.excess_class: exact;
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

    apply {
        if (!meta.drop && !meta.punt && !meta.multicast) {
            if (meta.gradient) {
                job_shares.apply();
            }
            metered.apply();
        }
        // Control messages are few and must not wait; whatever else a job sends beyond its share gives way to others.
        if (meta.color != Color.GREEN) {
            if (policy.has_share && policy.job_color != Color.GREEN) {
                demoted.apply();
            }
        }
    }
}

// The copies of multicasts fill virtual queues of their own as they leave: egress has no part in the meters of ingress.
control MulticastQueue(inout headers_t hdr, inout Color color, in port_t egress_port) {
    Congested() congested;

    @id(0x14000004)
    Meter<port_t>(PORTS, MeterType_t.BYTES) multicast_queue;

    apply {
        color = (Color)multicast_queue.execute(egress_port);
        congested.apply(hdr, color);
    }
}

// Drops or trims a slice that waits in the virtual queue, within the budget of its message.
control Budget(inout headers_t hdr, inout metadata_t meta, in port_policy_t policy, inout verdict_t verdict,
               inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    @hidden
    table droppable {
        key = {
            meta.color: exact;
            policy.yellow_from: ternary;
            policy.red_from: ternary;
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


    @id(0x16000002)
    Register<slot_t, bit<16>>(BUDGET_SLOTS) budgets;

    RegisterAction<slot_t, bit<16>, bit<1>>(budgets) take = {
        void apply(inout slot_t pair, out bit<1> taken) {
            taken = 0;
            if (pair.message != hdr.gradlane.message[15:0]) {
                pair.message = hdr.gradlane.message[15:0];
                pair.drops = 1;
                taken = 1;
            } else if (pair.drops < meta.share) {
                pair.drops = pair.drops + 1;
                taken = 1;
            }
        }
    };

    @hidden
    action limit_share() {
        meta.share = min(meta.share, meta.max_share);
    }

    apply {
        limit_share();
        // Other kinds are not what the budget is about, whatever tags the fabric has given them.
        if (meta.gradient && hdr.gradlane.kind == KIND_DATA) {
            if (droppable.apply().hit) {
                if (policy.has_share && policy.job_color == Color.GREEN) {
                    verdict.within_share = 1;
                } else if (meta.share == 0) {
                    verdict.spent = 1;
                    verdict.stale = look.execute(meta.slot_base[15:0]);
                } else {
                    verdict.spent = 1;
                    verdict.stale = claim.execute(meta.slot_base[15:0]);
                    if (verdict.stale == 0) {
                        verdict.taken = take.execute(meta.slot_base[15:0]);
                    }
                }
            }
        }
        if (verdict.within_share == 1) {
            meta.reason = Reason.WITHIN_SHARE;
        } else if (verdict.stale == 1) {
            meta.reason = Reason.STALE_MESSAGE;
        } else if (verdict.taken == 1 && meta.trim) {
            // A mirrored copy, which its session cuts off behind the Gradlane header, goes instead.
            ig_dprsr_md.mirror_type = MIRROR_TRIMMED;
            ig_dprsr_md.drop_ctl = 1;
            meta.queue_class = CONTROL_CLASS;
            meta.drop_precedence = PROTECTED;
            if (meta.color == Color.RED) {
                meta.reason = Reason.TRIMMED_RED;
            } else {
                meta.reason = Reason.TRIMMED_YELLOW;
            }
        } else if (verdict.taken == 1) {
            meta.drop = true;
            if (meta.color == Color.RED) {
                meta.reason = Reason.DROPPED_RED;
            } else {
                meta.reason = Reason.DROPPED_YELLOW;
            }
        } else if (verdict.spent == 1) {
            meta.reason = Reason.BUDGET_SPENT;
        }
    }
}

// Where the header of a trimmed slice goes, and how much that is. Tofino 2 has fewer sessions, but a copy says its port.
control Mirroring(inout ingress_metadata_t meta, inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    apply {
#if __TARGET_TOFINO__ == 2
        meta.mirror_session = 7w1 ++ meta.family;
        ig_dprsr_md.mirror_egress_port = meta.common.egress_port;
#else
        meta.mirror_session = meta.common.egress_port ++ meta.family;
#endif
    }
}
