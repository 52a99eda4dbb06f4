// SPDX-License-Identifier: Apache-2.0
// Direct counters of packets, of bytes and of both, on an exact, a longest prefix and a ternary table.
#include "include/base.p4"

header subject_t { bit<8> a; bit<16> b; bit<8> c; }
HEADERS
NO_METADATA

INGRESS {
    direct_counter(CounterType.packets) packets;
    direct_counter(CounterType.bytes) bytes;
    direct_counter(CounterType.packets_and_bytes) both;
    action step() { h.subject.c = h.subject.c + 1; packets.count(); }
    table by_a {
        key = { h.subject.a: exact; }
        actions = { step; NoAction; }
        counters = packets;
        size = 16;
    }
    table by_b {
        key = { h.subject.b: lpm; }
        actions = { NoAction; }
        counters = bytes;
        size = 16;
    }
    table by_c {
        key = { h.subject.c: ternary; }
        actions = { NoAction; }
        counters = both;
        size = 16;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { by_a.apply(); by_b.apply(); by_c.apply(); }
    }
}

#include "include/rest.p4"
