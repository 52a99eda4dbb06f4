// SPDX-License-Identifier: Apache-2.0
// The slots in which slices are summed. A packet meets each register once, so what is known of a slot is in several, one
// after the other: whose it is, which slice, who is accounted for, how far it is, who is in the sum. Each is written as soon
// as all before it agree, and what is written never has to be undone.

// How far a slice is. More than that it never becomes less.
const bit<8> OPEN = 0;
const bit<8> COMPLETE = 1;      // all beneath this switch are accounted for
const bit<8> FINAL = 2;         // all of the job are

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
