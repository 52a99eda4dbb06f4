// SPDX-License-Identifier: Apache-2.0
// Sums of gradients, as v1model's, of slices whose lanes one pass adds: one word, over IPv4.

// The number of no port.
const port_t NO_PORT = 511;

// A packet is counted once: what is the last contribution, and makes a sum, has an event of its own.
const SumEvent LAST = (SumEvent)4w9;            // CONTRIBUTION and RESULT
const SumEvent LAST_BENEATH = (SumEvent)4w10;   // CONTRIBUTION and PARTIAL

// Of which tree a SUM is, whom it accounts for, who is in it, and what it would take to finish it.
control SumTree(in headers_t hdr, in metadata_t meta, inout sum_t sum, in port_t ingress_port) {
    // `all`: the bits of the job's workers; `here`: of those beneath this switch, at the root all. `up`: the port towards
    // the root; `group`: where sums go down. `own`, `address` (as `source` of `contributors`): of the switch, from which
    // sums come: a host drops what seems to come from itself. `epoch`: another one each time that the slots were
    // forgotten.
    @action_restriction("
        here != 0;
        here <= all;
        here == all || up != 0;
        up != 511;
        group != 0;
        slot_base < 0x1000;
        slot_mask == 0x000 || slot_mask == 0x001 || slot_mask == 0x003 || slot_mask == 0x007 || slot_mask == 0x00F ||
        slot_mask == 0x01F || slot_mask == 0x03F || slot_mask == 0x07F || slot_mask == 0x0FF || slot_mask == 0x1FF ||
        slot_mask == 0x3FF || slot_mask == 0x7FF || slot_mask == 0xFFF;
        address != 0;
        epoch != 0;
    ")
    @id(0x01000025)
    action sum_at(bit<32> all, bit<32> here, port_t up,
                  @refers_to(builtin::multicast_group_table, multicast_group_id) bit<16> group,
                  bit<32> slot_base, bit<32> slot_mask, mac_t own, ipv6_t address, bit<8> epoch) {
        sum.all_workers = all;
        sum.here = here;
        sum.up = up;
        sum.group = group;
        sum.slot = slot_base[15:0];
        sum.slot_mask = slot_mask[15:0];
        sum.own = own;
        sum.address = address[31:0];
        sum.epoch = epoch;
    }

    // `member`: the bit of the worker behind the port.
    @action_restriction("
        member == 0x00000001 || member == 0x00000002 || member == 0x00000004 || member == 0x00000008 ||
        member == 0x00000010 || member == 0x00000020 || member == 0x00000040 || member == 0x00000080 ||
        member == 0x00000100 || member == 0x00000200 || member == 0x00000400 || member == 0x00000800 ||
        member == 0x00001000 || member == 0x00002000 || member == 0x00004000 || member == 0x00008000 ||
        member == 0x00010000 || member == 0x00020000 || member == 0x00040000 || member == 0x00080000 ||
        member == 0x00100000 || member == 0x00200000 || member == 0x00400000 || member == 0x00800000 ||
        member == 0x01000000 || member == 0x02000000 || member == 0x04000000 || member == 0x08000000 ||
        member == 0x10000000 || member == 0x20000000 || member == 0x40000000 || member == 0x80000000;
    ")
    @id(0x01000023)
    action contribute(bit<32> member) {
        sum.covers = member;
        sum.brings = member;
    }

    // `workers`: the bits of all that are beneath the switch behind the port.
    @action_restriction("workers != 0")
    @id(0x01000026)
    action cover(bit<32> workers) {
        sum.covers = workers;
        sum.brings = hdr.sum.members;
    }

    @id(0x01000024)
    action no_slots() {
        sum.lost = 1;
    }

    // The trees of a job take turns: all contributions to a slice meet in the same one.
    @entry_restriction("job != 0")
    @id(0x02000013)
    table sum_trees {
        key = {
            hdr.gradlane.job: exact @name("job");
            hdr.gradlane.message[3:0]: exact @name("bucket");
        }
        actions = { sum_at; @defaultonly no_slots; }
        const default_action = no_slots();
        size = SUM_TREES;
    }

    @entry_restriction("ingress_port != 0; ingress_port != 511; source != 0; job != 0")
    @id(0x02000012)
    table contributors {
        key = {
            ingress_port: exact @name("ingress_port");
            meta.source: exact @name("source");
            hdr.gradlane.job: exact @name("job");
        }
        actions = { contribute; @defaultonly no_slots; }
        const default_action = no_slots();
        size = CONTRIBUTORS;
    }

    @entry_restriction("ingress_port != 0; ingress_port != 511; job != 0")
    @id(0x02000014)
    table subtrees {
        key = {
            ingress_port: exact @name("ingress_port");
            hdr.gradlane.job: exact @name("job");
        }
        actions = { cover; @defaultonly no_slots; }
        const default_action = no_slots();
        size = SUBTREES;
    }

    @hidden
    action from_above() {
        sum.covers = sum.all_workers;
        sum.brings = hdr.sum.members;
    }

    // Who would lack if nobody else were in the slot; who is in it but not beneath its port.
    @hidden
    action measure() {
        sum.lacks = sum.here & ~sum.covers;
        sum.stray = sum.brings & ~sum.covers;
        sum.has = hdr.sum.members & sum.covers;
    }

    // Who lacks elsewhere; the slot, in two steps.
    @hidden
    action look_beyond() {
        sum.beyond = sum.all_workers & ~sum.here;
        sum.slot_mask = sum.slot_mask & hdr.sum.slot;
    }

    @hidden
    action find_slot() {
        sum.slot = sum.slot + sum.slot_mask;
    }

    @hidden
    action reject(SumEvent happened) {
        sum.rejected = 1;
        sum.event = happened;
    }

    // Who may be missing lacks no more.
    @hidden
    action forgive() {
        sum.lacks = sum.lacks & ~hdr.sum.members;
    }

    apply {
        // A sum over IPv6 would need a UDP checksum.
        if (hdr.sum.isValid() && hdr.ipv4.isValid() && hdr.gradlane.budget == 0) {
            if (sum.result == 0 || meta.from_fabric == 1) {
                sum.fits = 1;
            }
            sum_trees.apply();
            look_beyond();
            find_slot();
            if (sum.result == 1) {
                from_above();
            } else if (meta.from_fabric == 1) {
                subtrees.apply();
            } else {
                contributors.apply();
            }
            measure();
            if (sum.result == 0 && meta.from_fabric == 0) {
                // Who relies on a sum that this switch has forgotten could have a slice finished twice.
                if (hdr.sum.epoch == sum.epoch) {
                    forgive();
                } else if (hdr.sum.epoch != 0) {
                    sum.outdated = 1;
                }
            }
            // At the root nobody is above.
            if (sum.beyond != 0) {
                if (sum.result == 1 && ingress_port != sum.up) {
                    sum.reminds = 1;
                } else if (sum.result == 0 && meta.from_fabric == 0 && sum.has != 0) {
                    sum.reminds = 1;
                }
            }
            // What a partial brings that its port does not cover is of a tree that was, or will be.
            if (sum.lost == 1) {
                reject(SumEvent.NO_SLOTS);
            } else if (sum.outdated == 1) {
                reject(SumEvent.STALE);
            } else if (sum.stray != 0) {
                reject(SumEvent.STALE);
            }
        }
    }
}
// Of a SUM that has the form of one, and is on its way to a group.
control Aggregation(inout headers_t hdr, inout metadata_t meta, inout sum_t sum, in port_t ingress_port) {
    Slot() slot;
    Words() words;

    @hidden
    action drop() {
        meta.drop = true;
        meta.reason = DROPPED_SUM;
    }

    @hidden
    action absorb() {
        sum.event = SumEvent.CONTRIBUTION;
        meta.drop = true;
        meta.reason = ABSORBED;
    }

    @hidden
    action duplicate() {
        sum.event = SumEvent.DUPLICATE;
        drop();
    }

    @hidden
    action send_to_all(SumEvent happened) {
        sum.event = happened;
        hdr.gradlane.flags = hdr.gradlane.flags | FLAG_PULL;
    }

    @hidden
    action answer() {
        sum.event = SumEvent.ANSWER;
        sum.port = ingress_port;
        hdr.gradlane.flags = hdr.gradlane.flags | FLAG_PULL;
    }

    @hidden
    action send_up(SumEvent happened) {
        sum.event = happened;
        sum.port = sum.up;
    }

    // A root that has lost the result takes it as one from above, and passes it on.
    @hidden
    action remind() {
        sum.event = SumEvent.PARTIAL;
        sum.port = sum.up;
        hdr.gradlane.flags = hdr.gradlane.flags | FLAG_PULL;
    }

    @hidden
    table fates {
        key = {
            sum.result: exact;
            sum.reminds: ternary;
            sum.before: ternary;
            sum.stage: ternary;
            sum.lanes: ternary;
        }
        actions = { absorb; duplicate; send_to_all; answer; send_up; remind; }
        const default_action = absorb();
        const entries = {
            (0, 1, FINAL, _, _): remind();
            (1, 1, FINAL, _, _): remind();
            (1, _, FINAL, _, _): duplicate();
            (1, _, _, _, _): send_to_all(SumEvent.RESULT);
            (0, _, FINAL, _, _): answer();
            (0, _, _, FINAL, Lanes.READ): send_to_all(SumEvent.RESULT);
            (0, _, _, FINAL, _): send_to_all(LAST);
            (0, _, COMPLETE, _, _): send_up(SumEvent.PARTIAL);
            (0, _, _, COMPLETE, Lanes.READ): send_up(SumEvent.PARTIAL);
            (0, _, _, COMPLETE, _): send_up(LAST_BENEATH);
            (0, _, _, _, Lanes.READ): duplicate();
        }
    }

    // Headers of this switch's own, for lanes that are the slot's. Over IPv4 UDP's checksum may be left out.
    @hidden
    action make_sum() {
        hdr.ethernet.src = sum.own;
        hdr.ipv4.src = sum.address;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        hdr.udp.checksum = 0;
        hdr.sum.epoch = sum.epoch;
        meta.multicast = true;
        meta.next_hop = sum.group;
    }

    // Which of its workers are in the sum.
    @hidden
    action find_inside() {
        sum.covers = sum.covers & hdr.sum.members;
    }

    apply {
        sum.counted = 1;
        if (sum.rejected == 1) {
            drop();
        } else {
            slot.apply(hdr, sum);
            if (sum.older == 1) {
                sum.event = SumEvent.STALE;
                drop();
            } else {
                words.apply(hdr, sum);
                make_sum();
                fates.apply();
                find_inside();
                if (sum.event == SumEvent.ANSWER && sum.covers == 0) {
                    sum.event = SumEvent.LATE;
                }
            }
        }
    }
}

// Of any other that would be forwarded.
control Refusal(inout metadata_t meta, inout sum_t sum) {
    apply {
        if (sum.asked && meta.gradient && !meta.drop && !meta.punt) {
            sum.counted = 1;
            sum.event = SumEvent.REFUSED;
            meta.drop = true;
            meta.reason = DROPPED_SUM;
        }
    }
}

control SumCounter(in metadata_t meta, in sum_t sum) {
    @id(0x12000003)
    Counter<bit<64>, bit<12>>(SUM_EVENTS, CounterType_t.PACKETS_AND_BYTES) sums;

    Hash<bit<12>>(HashAlgorithm_t.IDENTITY) event;

    apply {
        if (sum.counted == 1) {
            sums.count(event.get({ meta.job_index, sum.event }));
        }
    }
}
