// SPDX-License-Identifier: Apache-2.0
// What only Tofino has: its numbers for what every target has, and what ingress tells egress.

#ifndef GRADLANE_ARCH_P4
#define GRADLANE_ARCH_P4

// Meter colours (v1model numbers RED 2). In a trace all targets number them as v1model.
enum bit<8> Color { GREEN = 0, YELLOW = 1, RED = 3 }

// How the controls in shared/ name externs.
#define DIRECT_COUNTER DirectCounter<bit<64>>(CounterType_t.PACKETS_AND_BYTES)
#define PACKET_METER(index_t, cells) Meter<index_t>(cells, MeterType_t.PACKETS)
#define BYTE_METER(index_t, cells) Meter<index_t>(cells, MeterType_t.BYTES)
#define EXECUTE_METER(meter, index, color) color = (Color)meter.execute(index)

// CPU_PORT: packets to and from the controller, the PCIe port; 192 of a Tofino with two pipes (with four: 320).
// DEPTH_UNIT: Tofino tells the depth of a queue in cells of its packet buffer.
#if __TARGET_TOFINO__ == 2
const port_t CPU_PORT = 0;
const bit<8> DEPTH_UNIT = 176;
#else
const port_t CPU_PORT = 192;
const bit<8> DEPTH_UNIT = 80;
#endif

const bit<32> SENDERS = 1024;
const bit<32> JOB_SHARES = 1024;
// So many that their TCAM is in one stage, or all of those in types.p4.
#ifdef SMALLER_PROFILE
const bit<32> IPV4_PLACES = 8192;
const bit<32> IPV6_PLACES = 1024;
#else
const bit<32> IPV4_PLACES = IPV4_ROUTES;
const bit<32> IPV6_PLACES = IPV6_ROUTES;
#endif
// Cells of `decisions`: job index (4 bits) ++ reason (5) ++ queue class (3) ++ drop precedence (3). They lie in one stage,
// and no more fit there: jobs from LAST_COUNTED_JOB on are counted together.
const bit<32> DECISIONS = 32768;
const bit<4> LAST_COUNTED_JOB = 15;

// Most members of an ECMP group: a selector's word has room for 120.
const bit<32> GROUP_MEMBERS = 120;

// The first byte of what egress gets says what follows.
enum bit<8> Origin {
    ORDINARY = 0,   // bridged_h, and the packet
    GRADIENT = 1,   // the same, a gradient
    TRIMMED  = 2    // trimmed_h, and what ingress had received, cut off behind the Gradlane header
}

const MirrorType_t MIRROR_TRIMMED = 1;
const DigestType_t DIGEST_VIOLATION = 1;

// Of a packet that went through the queues.
header bridged_h {
    Origin            origin;
    @padding bit<7>   pad0;
    port_t            ingress_port;
    bit<16>           switch_id;
    Color             color;
    @padding bit<7>   pad1;
    bit<1>            multicast;
    @padding bit<5>   pad2;
    queue_class_t     queue_class;
}

// Of a mirrored copy: what ingress had changed in the original.
header trimmed_h {
    Origin  origin;
    bit<8>  ttl;
    mac_t   dst;
    mac_t   src;
}

#endif
