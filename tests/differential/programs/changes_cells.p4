// SPDX-License-Identifier: Apache-2.0
// Counters, registers and meters that the control plane writes while packets use them.
#include "include/base.p4"

header subject_t { bit<8> a; bit<8> r1; bit<32> r2; bit<8> r3; bit<8> r4; }
HEADERS
struct metadata_t { bit<2> colour; bit<8> direct; }

INGRESS {
    counter(8, CounterType.packets_and_bytes) seen;
    counter(8, CounterType.bytes) sizes;
    register<bit<32>>(8) sums;
    register<bit<7>>(4) small;
    meter(8, MeterType.packets) limits;
    direct_meter<bit<8>>(MeterType.bytes) own;
    action metered() { own.read(m.direct); }
    table rules { key = { h.subject.a: exact; } actions = { metered; NoAction; } meters = own; default_action = NoAction(); size = 16; }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            bit<32> index = (bit<32>)h.subject.a[2:0];
            seen.count(index);
            sizes.count(index);
            bit<32> sum;
            sums.read(sum, index);
            sum = sum + 1;
            sums.write(index, sum);
            bit<7> little;
            small.read(little, index & 3);
            limits.execute_meter(index, m.colour);
            rules.apply();
            h.subject.r1 = (bit<8>)little;
            h.subject.r2 = sum;
            h.subject.r3 = (bit<8>)m.colour;
            h.subject.r4 = m.direct;
        }
    }
}

#include "include/rest.p4"
