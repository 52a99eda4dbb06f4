// SPDX-License-Identifier: Apache-2.0
// Sums of gradients: what all workers of a job contribute to a slice comes back once, as their sum, to all of them. Where
// they are at several switches, these make a tree: each sends what it has summed up once, and the root's sum goes down.
// A slot holds the newest slice that came for it until a newer one does, so that who misses the result can ask again.

control Aggregation(inout headers_t hdr, inout metadata_t meta, in port_t ingress_port) {
    @id(0x12000003)
    counter(SUM_EVENTS, CounterType.packets_and_bytes) sums;

    @id(0x16000002)
    register<bit<64>>(SUM_SLOTS) slot_keys;         // generation ++ number of the slice

    @id(0x16000003)
    register<bit<64>>(SUM_SLOTS) slot_members;      // who is accounted for ++ who is in it

    @id(0x16000004)
    register<bit<32>>(SUM_SLOTS) slot_forms;        // job ++ length of the payload; job 0: nobody's yet

    @id(0x16000005)
    register<bit<16>>(SUM_SLOTS) slot_checksums;

    @id(0x16000006)
    register<lanes_t>(SUM_SLOTS * MAX_SUM_WORDS) slot_words;    // a slot's in a row

    // Of the slice's tree.
    bit<32> all_workers = 0;
    bit<32> workers_here = 0;
    port_t port_up = 0;
    bit<32> slot = 0;
    mac_t own_mac = 0;
    ipv6_t own_address = 0;
    bit<8> own_epoch = 0;

    // Of the datagram, as meta.source.
    ipv6_t destination = 0;

    // Of a SUM: whom it accounts for, who is in it, who may be missing; whether who sends it has the result, and is not
    // above.
    bit<32> covers = 0;
    bit<32> brings = 0;
    bit<32> may_miss = 0;
    bool reminds = false;
    bool in_part = false;       // somebody whom it stands for is not in it

    // `all`: the bits of the job's workers; `here`: of those beneath this switch, at the root all. In a job of more
    // workers than bits they are of the switch's own children, and below the root what is elsewhere has those left.
    // `up`: the port towards the root; `group`: where sums go down. `own`, `address` (as `source` of `contributors`): of
    // the switch, from which sums come: a host drops what seems to come from itself. `epoch`: another one each time that
    // the slots were forgotten.
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
        all_workers = all;
        workers_here = here;
        port_up = up;
        meta.next_hop = group;
        slot = (slot_base + ((bit<32>)hdr.sum.slot & slot_mask)) & (SUM_SLOTS - 1);
        own_mac = own;
        own_address = address;
        own_epoch = epoch;
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
        covers = member;
        brings = member;
    }

    // `workers`: the bits of all that are beneath the switch behind the port.
    @action_restriction("workers != 0")
    @id(0x01000026)
    action cover(bit<32> workers) {
        covers = workers;
        brings = hdr.sum.members;
    }

    // The same in a job of more workers than bits: `bits` are of the switch behind the port, `workers` are those that it
    // has given to its own children.
    @action_restriction("bits != 0; workers != 0")
    @id(0x01000027)
    action stand_for(bit<32> bits, bit<32> workers) {
        covers = bits;
        brings = bits;
        in_part = hdr.sum.members != workers;
    }

    @hidden
    action count(SumEvent happened) {
        sums.count((bit<32>)(meta.job_index ++ happened));
    }

    @hidden
    action drop(SumEvent why) {
        meta.drop = true;
        meta.reason = DROPPED_SUM;
        count(why);
    }

    @id(0x01000024)
    action no_slots() {
        drop(SumEvent.NO_SLOTS);
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
        actions = { cover; stand_for; @defaultonly no_slots; }
        const default_action = no_slots();
        size = SUBTREES;
    }

    // A slice has one word at least, the last one.
#define EACH_WORD(DO) \
    DO(10) if (hdr.words[9].isValid()) { DO(9) } if (hdr.words[8].isValid()) { DO(8) } \
    if (hdr.words[7].isValid()) { DO(7) } if (hdr.words[6].isValid()) { DO(6) } if (hdr.words[5].isValid()) { DO(5) } \
    if (hdr.words[4].isValid()) { DO(4) } if (hdr.words[3].isValid()) { DO(3) } if (hdr.words[2].isValid()) { DO(2) } \
    if (hdr.words[1].isValid()) { DO(1) } if (hdr.words[0].isValid()) { DO(0) }
#define WRITE(n) slot_words.write(cell + n, hdr.words[n].lanes);
#define READ(n) slot_words.read(hdr.words[n].lanes, cell + n);
#define ADD(n) \
    slot_words.read(so_far, cell + n); \
    hdr.words[n].lanes = hdr.words[n].lanes + so_far; \
    slot_words.write(cell + n, hdr.words[n].lanes);

    @hidden
    action write() {
        bit<32> cell = slot * MAX_SUM_WORDS;
        EACH_WORD(WRITE)
    }

    @hidden
    action add() {
        bit<32> cell = slot * MAX_SUM_WORDS;
        lanes_t so_far;
        EACH_WORD(ADD)
    }

    @hidden
    action read() {
        bit<32> cell = slot * MAX_SUM_WORDS;
        EACH_WORD(READ)
    }

    // The lanes have the sum that the datagram has, less that of all else in it.
    @hidden
    action add_checksum(inout bit<16> checksum) {
        bit<16> less_others;
        hash(less_others, HashAlgorithm.csum16, 16w0, { SUM_CHECKSUM_INPUT(hdr, meta.source, destination) }, 32w65536);
        bit<16> all = ~hdr.udp.checksum;
        bit<16> complement;
        hash(complement, HashAlgorithm.csum16, 16w0, { checksum, all, less_others }, 32w65536);
        if (hdr.udp.checksum == 0 || checksum == 0) {
            checksum = 0;
        } else {
            checksum = ~complement;
        }
    }

    // Headers of this switch's own, for words that are the slot's.
    @hidden
    action make_sum(in bit<32> members, in bit<16> checksum) {
        hdr.ethernet.src = own_mac;
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.src = own_address[31:0];
        } else {
            hdr.ipv6.src = own_address;
        }
        hdr.sum.members = members;
        hdr.sum.epoch = own_epoch;
        hash(hdr.udp.checksum, HashAlgorithm.csum16, 16w0, { SUM_CHECKSUM_INPUT(hdr, own_address, destination), checksum }, 32w65536);
        if (checksum == 0) {
            hdr.udp.checksum = 0;
        } else if (hdr.udp.checksum == 0) {
            hdr.udp.checksum = 0xFFFF;
        }
    }

    @hidden
    action send_to(port_t port) {
        meta.multicast = false;
        meta.egress_port = port;
    }

    apply {
        bool is_result = hdr.gradlane.flags & FLAG_PULL != 0;
        if (meta.drop || meta.punt) {
            return;     // nobody asks any more
        }
        // Over IPv6 nobody takes UDP without a checksum (RFC 8200, section 8.1), nor would its sum be taken.
        if (!meta.multicast || !hdr.words[10].isValid() || (hdr.ipv6.isValid() && hdr.udp.checksum == 0)
            || hdr.gradlane.budget != 0 || (is_result && meta.from_fabric == 0)) {
            drop(SumEvent.REFUSED);
            return;
        }
        destination = hdr.ipv6.dst;
        if (hdr.ipv4.isValid()) {
            destination = IPV4_MAPPED ++ hdr.ipv4.dst;
        }
        sum_trees.apply();
        if (meta.drop) {
            return;
        }
        if (is_result) {
            covers = all_workers;
            brings = hdr.sum.members;
            reminds = ingress_port != port_up;
        } else if (meta.from_fabric == 1) {
            subtrees.apply();
        } else if (contributors.apply().hit) {
            reminds = hdr.sum.members & covers != 0;
            // Who relies on a sum that this switch has forgotten could have a slice finished twice.
            if (hdr.sum.epoch == own_epoch) {
                may_miss = hdr.sum.members & workers_here;
            } else if (hdr.sum.epoch != 0) {
                drop(SumEvent.STALE);
            }
        }
        if (meta.drop) {
            return;
        }
        @atomic {
            bit<64> key;
            bit<64> workers;
            bit<32> form;
            bit<16> checksum;
            slot_keys.read(key, slot);
            slot_members.read(workers, slot);
            slot_forms.read(form, slot);
            slot_checksums.read(checksum, slot);
            bit<32> covered = workers[63:32];
            bit<32> members = workers[31:0];

            // How much newer than what is in the slot: serial numbers (RFC 1982), so the upper half of the distances
            // is the past. Numbers count within a generation. What another job has left has no age.
            bit<32> age = hdr.sum.generation - key[63:32];
            if (age == 0) {
                age = hdr.gradlane.message - key[31:0];
            }
            bool first = form[31:16] != hdr.gradlane.job || (age != 0 && age[31:31] == 0);
            if (first) {
                covered = 0;
                members = 0;
            }
            // Whom it accounts for is accounted for: what it brings must not be added.
            bool known = !is_result && covered & covers != 0;

            // What a partial brings that its port does not cover is of a tree that was, or will be; nor can a part be
            // added of those who have bits together.
            if ((!first && (age != 0 || form[15:0] != hdr.gradlane.length)) || brings & ~covers != 0 || in_part) {
                drop(SumEvent.STALE);
            } else if (covered == all_workers && reminds && workers_here != all_workers) {
                // A root that has lost the result takes it as one from above, and passes it on.
                known = true;
                count(SumEvent.PARTIAL);
                send_to(port_up);
            } else if (covered == all_workers && is_result) {
                drop(SumEvent.DUPLICATE);
            } else if (covered == all_workers) {
                // Once finished it stays as it is.
                known = true;
                if (members & covers != 0) {
                    count(SumEvent.ANSWER);
                } else {
                    count(SumEvent.LATE);
                }
                send_to(ingress_port);
            } else {
                if (first || is_result) {
                    slot_keys.write(slot, hdr.sum.generation ++ hdr.gradlane.message);
                    slot_forms.write(slot, hdr.gradlane.job ++ hdr.gradlane.length);
                    members = brings;
                    checksum = 0xFFFF;
                    add_checksum(checksum);
                    write();
                } else if (!known) {
                    members = members | brings;
                    add_checksum(checksum);
                    add();
                }
                covered = covered | covers;
                if (covered | may_miss == workers_here) {
                    covered = workers_here;
                }
                slot_members.write(slot, covered ++ members);
                slot_checksums.write(slot, checksum);
                if (!known && !is_result) {
                    count(SumEvent.CONTRIBUTION);
                }
                if (covered == all_workers) {
                    count(SumEvent.RESULT);
                } else if (covered == workers_here) {
                    count(SumEvent.PARTIAL);
                    send_to(port_up);
                } else if (known) {
                    drop(SumEvent.DUPLICATE);
                } else {
                    meta.drop = true;
                    meta.reason = ABSORBED;
                }
            }
            if (!meta.drop) {
                if (known) {
                    read();
                }
                if (covered == all_workers) {
                    hdr.gradlane.flags = hdr.gradlane.flags | FLAG_PULL;
                }
                make_sum(members, checksum);
            }
        }
    }
}
