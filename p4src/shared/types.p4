// SPDX-License-Identifier: Apache-2.0
// Types, sizes and numbers that every target shares.

#ifndef GRADLANE_TYPES_P4
#define GRADLANE_TYPES_P4

typedef bit<9> port_t;
typedef bit<48> mac_t;
typedef bit<32> ipv4_t;
typedef bit<128> ipv6_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<16> ETHERTYPE_IPV6 = 0x86DD;
const bit<16> ETHERTYPE_LLDP = 0x88CC;
const bit<16> ETHERTYPE_VLAN = 0x8100;           // and priority: IEEE 802.1Q
const bit<16> ETHERTYPE_SERVICE_VLAN = 0x88A8;
const bit<16> ETHERTYPE_OLD_SERVICE_VLAN = 0x9100;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;
const bit<8> PROTOCOL_ICMPV6 = 58;
// IPv6 extension headers behind which a host would find UDP.
const bit<8> HOP_BY_HOP = 0;
const bit<8> ROUTING_HEADER = 43;
const bit<8> FRAGMENT_HEADER = 44;
const bit<8> DESTINATION_OPTIONS = 60;
// Router and neighbour solicitation and advertisement, redirect (RFC 4861): ICMPv6 types in a row.
const bit<8> ROUTER_SOLICITATION = 133;
const bit<8> REDIRECT = 137;
const bit<96> IPV4_MAPPED = 0xFFFF;       // an IPv4 address as IPv6: ::ffff:a.b.c.d

// The wire header that this program understands; anything else is ordinary traffic.
const bit<16> GRADLANE_UDP_PORT = 47400;
const bit<4> GRADLANE_VERSION = 1;

// Bytes of the headers in headers.p4.
const bit<16> ETHERNET_BYTES = 14;
const bit<16> IPV4_BYTES = 20;
const bit<16> IPV6_BYTES = 40;
const bit<16> UDP_BYTES = 8;
const bit<16> GRADLANE_BYTES = 36;
const bit<16> HOP_BYTES = 16;
// UDP's length of a gradient packet without payload: a shorter datagram can't be one.
const bit<16> GRADLANE_UDP_LENGTH = UDP_BYTES + GRADLANE_BYTES;
// UDP's length and protocol in the pseudo-header of a datagram without payload; and by how much a trace's lengths grow at
// a switch, together: UDP's, in both headers, and Gradlane's.
const bit<16> TRIMMED_LENGTHS = GRADLANE_UDP_LENGTH + (bit<16>)PROTOCOL_UDP;
const bit<16> TRACED_LENGTHS = 3 * HOP_BYTES;
// A trimmed slice is what ends with the Gradlane header.
const bit<32> TRIMMED_IPV4_BYTES = (bit<32>)(ETHERNET_BYTES + IPV4_BYTES + GRADLANE_UDP_LENGTH);
const bit<32> TRIMMED_IPV6_BYTES = (bit<32>)(ETHERNET_BYTES + IPV6_BYTES + GRADLANE_UDP_LENGTH);

// What a gradient packet is. Only DATA may ever be dropped or trimmed by policy.
const bit<4> KIND_DATA = 0;
const bit<4> KIND_REPAIR = 1;
const bit<4> KIND_TRIMMED = 2;   // DATA whose payload a switch has cut off
const bit<4> KIND_TRACE = 7;     // collects a record of every switch that it passes
const bit<4> UNASSIGNED_KINDS = 8;  // the bit that none of the kinds has
const bit<8> FLAG_RETURNED = 8;  // a trace on its way back: collects nothing more

// Queue classes: 7 is served first, 0 is best effort. Control messages of the transport take the top.
typedef bit<3> queue_class_t;
const queue_class_t BEST_EFFORT = 0;
const queue_class_t CONTROL_CLASS = 7;

// Drop precedence: 0 is protected, a higher value is dropped earlier.
typedef bit<3> drop_precedence_t;
const drop_precedence_t PROTECTED = 0;

const bit<2> ECN_NOT_CAPABLE = 0;
const bit<2> ECN_CAPABLE = 2;
const bit<2> ECN_CONGESTED = 3;

// What was decided for a packet. The value is part of the index of the counter `decisions`.
enum bit<5> Reason {
    FORWARDED         = 0,
    BUDGET_SPENT      = 1,    // forwarded: droppable and congested, but its message has no budget left
    STALE_MESSAGE     = 2,    // forwarded: droppable and congested, but a newer message owns the slot
    WITHIN_SHARE      = 3,    // forwarded: droppable and congested, but its job is within its share of the port
    UNKNOWN_VERSION   = 4,    // forwarded as ordinary traffic: a Gradlane header of another version
    MALFORMED         = 5,    // forwarded as ordinary traffic: a Gradlane header that contradicts itself
    TRIMMED_YELLOW    = 6,    // forwarded without its payload, first threshold
    TRIMMED_RED       = 7,    // the same, second threshold
    PUNTED_ARP        = 8,    // to the controller, as the next three
    PUNTED_ND         = 9,
    PUNTED_TTL        = 10,
    PUNTED_LOCAL      = 11,   // to an address of the switch
    DROPPED_YELLOW    = 12,   // gradient policy, first threshold
    DROPPED_RED       = 13,   // gradient policy, second threshold
    DROPPED_GUARD     = 14,   // a gradient packet that its port, source or job does not permit
    DROPPED_NO_ROUTE  = 15,
    DROPPED_NO_BRIDGE = 16,   // neither for the switch nor for an address that it bridges to
    DROPPED_NOT_IP    = 17,   // for the switch, but neither IPv4 nor IPv6
    DROPPED_BAD_IP    = 18,   // another IP version than the EtherType says, or IPv4 options
    DROPPED_CHECKSUM  = 19,   // of the IPv4 header
    DROPPED_TRUNCATED = 20,   // too short for its headers
    DROPPED_PUNT_RATE = 21,   // more for the controller than it wants
    PUNTED_LLDP       = 22,   // to the controller, which finds out by it whether a link works, as by the next
    PUNTED_PROBE      = 23,
    DROPPED_HIDDEN    = 24,   // a gradient could be behind its tag, its extension header, or in the rest of its fragments
    DROPPED_SOURCE    = 25,   // from a MAC or IP address that is not at its port
    DROPPED_LLDP      = 26,   // from a host
    DROPPED_GROUP     = 27,   // for a multicast group, but not of an aggregator of its job
    DEMOTED           = 28    // forwarded in best effort: not of a job's member, or beyond its port's bound on the top class
}

// Guaranteed sizes on every target; arch.p4 has those that depend on it.
const bit<32> PORTS = 512;
const bit<32> JOBS = 255;
const bit<32> RANGES = 1024;            // of layers, and of layers and magnitudes, over all jobs
const bit<32> IPV4_ROUTES = 16384;
const bit<32> IPV6_ROUTES = 4096;
const bit<32> NEXT_HOPS = 1024;         // ECMP groups, and their members
const bit<32> DSCP_CLASSES = 64;
const bit<32> STATIONS = 512;
const bit<32> BRIDGED = 4096;
const bit<32> DSCP_REWRITES = 512;
const bit<32> BUDGET_SLOTS = 65536;
const bit<32> DROP_MAP_CELLS = 8192;    // layer (9 bits) ++ upper half of the magnitude (4)
const bit<16> DROP_MAP_LAST_LAYER = 511; // and all beyond it
const bit<32> SOURCES = 1024;
const bit<32> AGGREGATORS = 1024;
const bit<32> PUNT_CELLS = 4096;        // port (9 bits) ++ lower part of the reason (3), in which no two PUNTED are alike

typedef bit<8> job_index_t;             // 0: no job
typedef bit<4> bits_t;                  // a number of bits

#endif
