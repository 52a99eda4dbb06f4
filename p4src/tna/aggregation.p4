// SPDX-License-Identifier: Apache-2.0
// Sums of gradients, as v1model's, of slices whose lanes one pass adds: one word, over IPv4. A packet meets each register
// once, so what is known of a slot is in several, one after the other: whose it is, which slice, who is accounted for, how
// far it is, who is in the sum. Each is written as soon as all before it agree, and what is written never has to be undone.

// How far a slice is. More than that it never becomes less.
const bit<8> OPEN = 0;
const bit<8> COMPLETE = 1;      // all beneath this switch are accounted for
const bit<8> FINAL = 2;         // all of the job are

// The number of no port.
const port_t NO_PORT = 511;

// A packet is counted once: what is the last contribution, and makes a sum, has an event of its own.
const SumEvent LAST = (SumEvent)4w9;            // CONTRIBUTION and RESULT
const SumEvent LAST_BENEATH = (SumEvent)4w10;   // CONTRIBUTION and PARTIAL

struct slice_t {
    bit<32> number;
    bit<32> generation;
}

struct account_t {
    bit<32> number;
    bit<32> covered;
}

struct pair_t {
    bit<32> first;
    bit<32> second;
}

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

// The slot of a slice, up to what becomes of its lanes.
control Slot(inout headers_t hdr, inout sum_t sum) {
    // Job 0: nobody's yet.
    @id(0x16000003)
    Register<bit<16>, bit<12>>(SUM_SLOTS) slot_jobs;

    RegisterAction<bit<16>, bit<12>, bit<1>>(slot_jobs) occupy = {
        void apply(inout bit<16> value, out bit<1> other) {
            other = 0;
            if (value != hdr.gradlane.job) {
                other = 1;
            }
            value = hdr.gradlane.job;
        }
    };

    @id(0x16000004)
    Register<slice_t, bit<12>>(SUM_SLOTS) slot_slices;

    // What another job has left has no age.
    RegisterAction<slice_t, bit<12>, bit<1>>(slot_slices) seize = {
        void apply(inout slice_t value) {
            value.number = hdr.gradlane.message;
            value.generation = hdr.sum.generation;
        }
    };

    // Serial numbers (RFC 1982): the upper half of the distances is the past. Numbers count within a generation.
    RegisterAction<slice_t, bit<12>, bit<32>>(slot_slices) compare = {
        void apply(inout slice_t value, out bit<32> older, out bit<32> generation) {
            older = 0;
            generation = value.generation;
            if ((int<32>)(hdr.sum.generation - value.generation) < 0
                || (hdr.sum.generation == value.generation && (int<32>)(hdr.gradlane.message - value.number) < 0)) {
                older = 1;
            } else {
                value.number = hdr.gradlane.message;
                value.generation = hdr.sum.generation;
            }
        }
    };

    // An ALU tells the outcome of one condition, so that it is the slice of before is found here, by its number: that is
    // of the same job and generation.
    @id(0x16000005)
    Register<account_t, bit<12>>(SUM_SLOTS) slot_covered;

    RegisterAction<account_t, bit<12>, bit<1>>(slot_covered) begin = {
        void apply(inout account_t value) {
            value.number = hdr.gradlane.message;
            value.covered = sum.covers;
        }
    };

    RegisterAction<account_t, bit<12>, bit<32>>(slot_covered) account = {
        void apply(inout account_t value, out bit<32> same, out bit<32> known) {
            same = 0;
            known = 0;
            if (value.number == hdr.gradlane.message) {
                same = 1;
                known = value.covered;
                value.covered = value.covered | sum.covers;
            } else {
                value.number = hdr.gradlane.message;
                value.covered = sum.covers;
            }
        }
    };

    @id(0x16000006)
    Register<bit<8>, bit<12>>(SUM_SLOTS) slot_stages;

    RegisterAction<bit<8>, bit<12>, bit<8>>(slot_stages) start = {
        void apply(inout bit<8> value) {
            value = sum.stage;
        }
    };

    RegisterAction<bit<8>, bit<12>, bit<8>>(slot_stages) advance = {
        void apply(inout bit<8> value, out bit<8> before) {
            before = value;
            if (value < sum.stage) {
                value = sum.stage;
            }
        }
    };

    @id(0x16000007)
    Register<bit<32>, bit<12>>(SUM_SLOTS) slot_members;

    RegisterAction<bit<32>, bit<12>, bit<32>>(slot_members) replace = {
        void apply(inout bit<32> value, out bit<32> after) {
            value = sum.brings;
            after = value;
        }
    };

    RegisterAction<bit<32>, bit<12>, bit<32>>(slot_members) unite = {
        void apply(inout bit<32> value, out bit<32> after) {
            value = value | sum.brings;
            after = value;
        }
    };

    RegisterAction<bit<32>, bit<12>, bit<32>>(slot_members) look = {
        void apply(inout bit<32> value, out bit<32> after) {
            after = value;
        }
    };

    // Who lacks here now, and who of this one is accounted for already.
    @hidden
    action reckon() {
        sum.lacks = sum.lacks & ~sum.known;
        sum.known = sum.known & sum.covers;
    }

    @hidden
    action read() {
        sum.lanes = Lanes.READ;
        hdr.sum.members = look.execute(sum.slot[11:0]);
    }

    @hidden
    action write() {
        sum.lanes = Lanes.WRITE;
        hdr.sum.members = replace.execute(sum.slot[11:0]);
    }

    @hidden
    action add() {
        sum.lanes = Lanes.ADD;
        hdr.sum.members = unite.execute(sum.slot[11:0]);
    }

    // What is new takes the slot; a result takes it if there is none yet; a contribution is added to what is open, and if
    // nobody of it is in that.
    @hidden
    table parts {
        key = {
            sum.same[0:0]: exact;
            sum.result: exact;
            sum.before: ternary;
            sum.known: ternary;
        }
        actions = { read; write; add; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (0, 0, _, _): write();
            (0, 1, _, _): write();
            (1, 1, FINAL, _): read();
            (1, 1, _, _): write();
            (1, 0, OPEN, 0): add();
            (1, 0, _, _): read();
        }
    }

    apply {
        sum.other = occupy.execute(sum.slot[11:0]);
        if (sum.other == 1) {
            seize.execute(sum.slot[11:0]);
        } else {
            sum.older = compare.execute(sum.slot[11:0], sum.generation);
        }
        if (sum.older == 0) {
            if (sum.other == 1) {
                begin.execute(sum.slot[11:0]);
            } else if (sum.generation != hdr.sum.generation) {
                begin.execute(sum.slot[11:0]);
            } else {
                sum.same = account.execute(sum.slot[11:0], sum.known);
            }
            reckon();
            if (sum.result == 1) {
                sum.stage = FINAL;
            } else if (sum.lacks != 0) {
                sum.stage = OPEN;
            } else if (sum.beyond != 0) {
                sum.stage = COMPLETE;
            } else {
                sum.stage = FINAL;
            }
            if (sum.same == 0) {
                start.execute(sum.slot[11:0]);
            } else {
                sum.before = advance.execute(sum.slot[11:0]);
            }
            parts.apply();
        }
    }
}

// Two lanes of 32 bits or four of 16, of all slots, and what becomes of them.
#define PAIR(n) \
    Register<pair_t, bit<12>>(SUM_SLOTS) slot_pairs_##n; \
    RegisterAction<pair_t, bit<12>, bit<32>>(slot_pairs_##n) write_##n = { \
        void apply(inout pair_t value) { \
            value.first = hdr.lanes.first_##n; \
            value.second = hdr.lanes.second_##n; \
        } \
    }; \
    RegisterAction<pair_t, bit<12>, bit<32>>(slot_pairs_##n) add_##n = { \
        void apply(inout pair_t value, out bit<32> first, out bit<32> second) { \
            value.first = value.first + hdr.lanes.first_##n; \
            value.second = value.second + hdr.lanes.second_##n; \
            first = value.first; \
            second = value.second; \
        } \
    }; \
    RegisterAction<pair_t, bit<12>, bit<32>>(slot_pairs_##n) read_##n = { \
        void apply(inout pair_t value, out bit<32> first, out bit<32> second) { \
            first = value.first; \
            second = value.second; \
        } \
    }; \
    @hidden action write_pair_##n() { \
        write_##n.execute(sum.slot[11:0]); \
    } \
    @hidden action add_pair_##n() { \
        hdr.lanes.first_##n = add_##n.execute(sum.slot[11:0], hdr.lanes.second_##n); \
    } \
    @hidden action read_pair_##n() { \
        hdr.lanes.first_##n = read_##n.execute(sum.slot[11:0], hdr.lanes.second_##n); \
    } \
    @hidden table pairs_##n { \
        key = { sum.lanes: exact; } \
        actions = { read_pair_##n; write_pair_##n; add_pair_##n; @defaultonly NoAction; } \
        const default_action = NoAction(); \
        const entries = { \
            Lanes.READ: read_pair_##n(); \
            Lanes.WRITE: write_pair_##n(); \
            Lanes.ADD: add_pair_##n(); \
        } \
    }
#define APPLY_PAIR(n) pairs_##n.apply();

control Words(inout headers_t hdr, in sum_t sum) {
    EACH_PAIR(PAIR)

    apply {
        EACH_PAIR(APPLY_PAIR)
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
