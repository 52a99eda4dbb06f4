// SPDX-License-Identifier: Apache-2.0
// Two-rate meters of packets and of bytes whose buckets don't refill: the colour depends on the bursts alone.
#include "include/base.p4"

header subject_t { bit<8> a; bit<8> b; bit<8> r1; bit<8> r2; }
HEADERS
struct metadata_t { bit<2> first; bit<32> second; }

INGRESS {
    meter(8, MeterType.packets) packets;
    meter(8, MeterType.bytes) bytes;
    apply {
        FORWARD
        if (h.subject.isValid()) {
            packets.execute_meter((bit<32>)h.subject.a[2:0], m.first);
            bytes.execute_meter((bit<32>)h.subject.b[2:0], m.second);
            h.subject.r1 = (bit<8>)m.first;
            h.subject.r2 = (bit<8>)m.second;
        }
    }
}

#include "include/rest.p4"
