// SPDX-License-Identifier: Apache-2.0
// Indirect counters of packets, of bytes and of both, in ingress and egress, also after the packet has grown.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> a; bit<8> b; }
header extra_t { bit<64> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; extra_t extra; }
NO_METADATA

INGRESS {
    counter(16, CounterType.packets) packets;
    counter(16, CounterType.bytes) bytes;
    apply {
        FORWARD
        if (h.subject.isValid()) {
            packets.count((bit<32>)h.subject.a[3:0]);
            bytes.count((bit<32>)h.subject.b[3:0]);
            if (h.subject.b[7:7] == 1) { h.extra.setValid(); h.extra.v = 1; }
            bytes.count(0);
        }
    }
}

EGRESS {
    counter(512, CounterType.packets_and_bytes) ports;
    apply { ports.count((bit<32>)s.egress_port); }
}

#include "include/rest.p4"
