// SPDX-License-Identifier: Apache-2.0
// What the parts of the pipeline tell one another about a packet.

#ifndef GRADLANE_METADATA_P4
#define GRADLANE_METADATA_P4

struct metadata_t {
    // From the parser.
    bool              unknown_version;
    bool              short_gradlane;
    bool              neighbour_discovery;
    bool              hidden;             // what it carries can't be seen
    bit<32>           ports;              // of TCP or UDP, source and destination

    // Of the port and the address.
    bit<16>           switch_id;
    bit<1>            from_fabric;        // came from another switch of the fabric, so its tags hold
    bit<1>            to_fabric;
    bits_t            chosen_bits;        // those of `spread` by which the switches before this one have chosen
    ipv6_t            source;             // an IPv4 address as ::ffff:a.b.c.d; 0: of no IP, of neighbour discovery
    bool              member;             // its sender is one of a job's
    bit<6>            dscp;
    bit<2>            ecn;

    // Of a gradient.
    bool              gradient;           // a Gradlane header that holds together
    bool              trim;               // rather than drop
    bool              spray;
    job_index_t       job_index;
    bit<32>           slot_base;
    bit<32>           slot_mask;
    bit<16>           max_share;          // the most that this switch may take of one message
    bit<16>           share;              // what it may take of this one

    // The decision.
    bool              drop;
    bool              punt;
    bool              multicast;
    bool              demoted;            // out of the top class
    Reason            reason;
    queue_class_t     queue_class;
    drop_precedence_t drop_precedence;
    Color             color;              // of the egress port's virtual queue
    port_t            egress_port;
    bit<16>           next_hop;           // ECMP group, or multicast group
    bit<16>           spread;             // which member of the ECMP group

    // Of a datagram that was changed behind its IP header: what its UDP checksum is of, beside the headers.
    bool              sum_trimmed;
    bool              sum_traced;
    bit<16>           sum_before;
    bit<16>           sum_lengths;
}

#endif
