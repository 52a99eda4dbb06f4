// SPDX-License-Identifier: Apache-2.0
// The headers of a packet. With -DAGGREGATION also those of a contribution to a sum, which are none of the shared ones:
// no other target sums.

#ifndef AGGREGATION

#include "../shared/headers.p4"

#define IS_SUM(gradlane) false
#define SUMMED_HERE(hdr) false

#else

// Those that every target has, under another name: there is one struct of all headers.
#define headers_t shared_headers_t
#include "../shared/headers.p4"
#undef headers_t

// In front of the lanes of a SUM (gradlane.wire, docs/wire-format.md).
header sum_h {
    bit<32> generation;
    bit<32> members;     // who is in it; of a worker's contribution: who may be missing
    bit<16> slot;        // one of the job's
    bit<8>  exponent;
    bit<8>  epoch;       // of the switch that its receiver or sender is at
}

// Lanes are added many at once. They have room for the sum, so nothing is carried from one into the next.
typedef bit<1024> lanes_t;

header word_h {
    lanes_t lanes;
}

const bit<16> SUM_BYTES = 12;
const bit<16> SUM_WORD = 128;                   // bytes
const bit<16> SUM_UDP_LENGTH = GRADLANE_UDP_LENGTH + SUM_BYTES;
const bit<32> MAX_SUM_WORDS = 11;
const bit<8> FLAG_PULL = 1;
const bit<8> FLAG_SUM = 32;

// A contribution, a partial sum, or a result.
#define IS_SUM(gradlane) (gradlane.kind & ~KIND_REPAIR == KIND_DATA && gradlane.flags & FLAG_SUM != 0)
// A result. Of whatever switch it came, it is this one's now.
#define SUMMED_HERE(hdr) (hdr.sum.isValid() && hdr.gradlane.flags & FLAG_PULL != 0)

// What the UDP checksum of a SUM is of, but for its lanes. Addresses are of IPv6; ::ffff:a.b.c.d has the same sum as
// a.b.c.d, as 0xFFFF is a zero of one's complement, so that one pseudo-header does for both.
#define SUM_CHECKSUM_INPUT(hdr, source, destination) \
    source, destination, 8w0, PROTOCOL_UDP, hdr.udp.length, hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.length, \
    hdr.gradlane, hdr.sum

struct headers_t {
    packet_out_h          packet_out;
    packet_in_h           packet_in;
    ethernet_h            ethernet;
    ipv4_h                ipv4;
    ipv6_h                ipv6;
    udp_h                 udp;
    gradlane_h            gradlane;
    hop_h                 hop;
    sum_h                 sum;
    word_h[MAX_SUM_WORDS] words;   // a contribution of k words has the last k
}

#endif
