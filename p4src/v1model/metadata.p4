// SPDX-License-Identifier: Apache-2.0
// What the ingress controls tell one another about a packet.

#ifndef GRADLANE_METADATA_P4
#define GRADLANE_METADATA_P4

// Meter colours as v1model numbers them (TNA numbers RED 3).
enum bit<2> Color { GREEN = 0, YELLOW = 1, RED = 2 }

struct metadata_t {
    bool              drop;
    Reason            reason;
    bool              multicast;
    bit<9>            egress_port;
    queue_class_t     queue_class;
    drop_precedence_t drop_precedence;
    Color             color;
    // Budget slots of the job, and the most that this switch may take of one message.
    bit<32>           slot_base;
    bit<32>           slot_mask;
    bit<16>           max_share;
}

#endif
