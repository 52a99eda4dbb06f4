// SPDX-License-Identifier: Apache-2.0
// What no packet can reach is in P4Info and not in the program: a table, an action profile, a digest, counters.
#include "include/base.p4"

header subject_t { bit<8> a; bit<8> r; }
HEADERS
NO_METADATA

struct learned_t { bit<48> source; bit<8> a; }

INGRESS {
    counter(4, CounterType.packets) unused_packets;
    register<bit<8>>(4) unused_cells;
    action_selector(HashAlgorithm.crc16, 16, 8) unused_members;
    action set(bit<8> v) { h.subject.r = v; }
    action count(bit<8> v) {
        unused_packets.count((bit<32>)v);
        unused_cells.write((bit<32>)v, v);
    }
    table used {
        key = { h.subject.a: exact; }
        actions = { set; NoAction; }
        size = 16;
    }
    table unused {
        key = { h.subject.a: exact; }
        actions = { set; count; NoAction; }
        size = 16;
    }
    table unused_choice {
        key = { h.subject.a: exact; h.subject.r: selector; }
        actions = { set; NoAction; }
        implementation = unused_members;
        size = 16;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            used.apply();
            bit<8> feature = 0;  // p4c finds that out after it has written P4Info
            if (feature != 0) {
                unused.apply();
                unused_choice.apply();
                digest<learned_t>(1, { h.ethernet.src, h.subject.a });
            }
        }
    }
}

#include "include/rest.p4"
