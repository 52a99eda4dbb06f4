// SPDX-License-Identifier: Apache-2.0
// Packet headers. The Gradlane header is defined in docs/wire-format.md and in gradlane.wire. Each target's headers.p4
// includes this, and adds those of sums.

#ifndef GRADLANE_HEADERS_P4
#define GRADLANE_HEADERS_P4

// From the controller: the port by which the rest shall leave, as it is.
@controller_header("packet_out")
header packet_out_h {
    bit<7> reserved;
    port_t egress_port;
}

// To the controller: why, and where it came from.
@controller_header("packet_in")
header packet_in_h {
    bit<2> reserved;
    bit<5> reason;
    port_t ingress_port;
}

header ethernet_h {
    mac_t   dst;
    mac_t   src;
    bit<16> ethertype;
}

header ipv4_h {
    bit<4>  version;
    bit<4>  ihl;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    ipv4_t  src;
    ipv4_t  dst;
}

// What the checksum is computed over: the header but for the checksum itself.
#define IPV4_CHECKSUM_INPUT(ipv4) { ipv4.version, ipv4.ihl, ipv4.dscp, ipv4.ecn, ipv4.total_length, \
                                    ipv4.identification, ipv4.flags, ipv4.fragment_offset, ipv4.ttl, ipv4.protocol, \
                                    ipv4.src, ipv4.dst }

header ipv6_h {
    bit<4>  version;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<20> flow_label;
    bit<16> payload_length;
    bit<8>  next_header;
    bit<8>  hop_limit;
    ipv6_t  src;
    ipv6_t  dst;
}

header udp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

// What the checksum of a datagram without payload is computed over, over IPv6; `lengths` is TRIMMED_LENGTHS.
#define TRIMMED_CHECKSUM_INPUT(hdr, lengths) { hdr.ipv6.src, hdr.ipv6.dst, lengths, hdr.udp.src_port, hdr.udp.dst_port, \
                                               hdr.udp.length, hdr.gradlane }

header gradlane_h {
    bit<4>  version;
    bit<4>  kind;
    bit<8>  magnitude;   // quantile of the slice within its message; 255 is the largest
    bit<16> job;
    bit<16> source;      // rank
    bit<16> layer;       // position of the tensor's first layer, from the model's input
    bit<32> step;
    bit<16> tensor;      // gradient bucket
    bit<8>  flags;
    bit<8>  element_type;
    bit<32> message;
    bit<16> slice;
    bit<16> slices;
    bit<16> budget;      // tolerated loss of this message, in slices
    bit<16> length;      // payload bytes
    bit<64> token;
}

// What a switch adds to a trace, in front of what earlier switches have added.
header hop_h {
    bit<16> switch_id;
    bit<16> ingress_port;
    bit<16> egress_port;
    bit<4>  queue_class;
    bit<4>  color;
    bit<8>  depth_unit;   // bytes in one unit of `depth`; 0: packets
    bit<32> depth;        // of the queue that the trace has left
    bit<32> wait;         // ns in that queue
}

struct headers_t {
    packet_out_h packet_out;
    packet_in_h  packet_in;
    ethernet_h   ethernet;
    ipv4_h       ipv4;
    ipv6_h       ipv6;
    udp_h        udp;
    gradlane_h   gradlane;
    hop_h        hop;
    SUM_HEADERS              // of the profile that sums
}

#endif
