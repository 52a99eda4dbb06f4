// SPDX-License-Identifier: Apache-2.0
// Packet headers. The Gradlane header is defined in docs/wire-format.md and in gradlane.wire.

#ifndef GRADLANE_HEADERS_P4
#define GRADLANE_HEADERS_P4

header ethernet_t {
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

header udp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

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

struct headers_t {
    ethernet_t ethernet;
    ipv4_h     ipv4;
    udp_h      udp;
    gradlane_h gradlane;
}

#endif
