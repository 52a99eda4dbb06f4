// SPDX-License-Identifier: Apache-2.0
// Types, sizes and numbers that every target shares.

#ifndef GRADLANE_TYPES_P4
#define GRADLANE_TYPES_P4

typedef bit<48> mac_t;
typedef bit<32> ipv4_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_UDP = 17;

// The wire header that this program understands; anything else is ordinary traffic.
const bit<16> GRADLANE_UDP_PORT = 47400;
const bit<4> GRADLANE_VERSION = 1;

// What a gradient packet is. Only DATA may ever be dropped by policy.
const bit<4> KIND_DATA = 0;
const bit<4> KIND_REPAIR = 1;

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

// What was decided for a packet. The value is the upper part of the index of the counter `decisions`.
enum bit<4> Reason {
    FORWARDED        = 0,
    BUDGET_SPENT     = 1,   // forwarded: droppable and congested, but its message has no budget left
    STALE_MESSAGE    = 2,   // forwarded: droppable and congested, but a newer message owns the slot
    DROPPED_YELLOW   = 3,   // gradient policy, first threshold
    DROPPED_RED      = 4,   // gradient policy, second threshold
    DROPPED_GUARD    = 5,   // a gradient packet that its port, source or job does not permit
    DROPPED_NO_ROUTE = 6,
    DROPPED_TTL      = 7,
    DROPPED_NOT_IPV4 = 8,
    DROPPED_OPTIONS  = 9    // an IPv4 header with options
}

// Guaranteed sizes.
const bit<32> MAX_PORTS = 64;
const bit<32> BUDGET_SLOTS = 65536;
const bit<32> DECISIONS = 1024;        // reason (4 bits) ++ queue class (3) ++ drop precedence (3)
const bit<32> DROP_MAP_CELLS = 1024;   // layer, at most 63 (6 bits) ++ upper half of the magnitude (4)

#endif
