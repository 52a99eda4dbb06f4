// SPDX-License-Identifier: Apache-2.0
// The headers of a packet. With -DAGGREGATION also those of a SUM, whose lanes each target has in its own way.

#ifndef AGGREGATION

#define SUM_HEADERS
#define IS_SUM(gradlane) false
#define SUMMED_HERE(hdr) false

#else

#include "../shared/sums.p4"

// Lanes are added many at once. They have room for the sum, so nothing is carried from one into the next.
typedef bit<1024> lanes_t;

header word_h {
    lanes_t lanes;
}

const bit<16> SUM_UDP_LENGTH = GRADLANE_UDP_LENGTH + SUM_BYTES;
const bit<32> MAX_SUM_WORDS = 11;

// A contribution of k words has the last k.
#define SUM_HEADERS sum_h sum; word_h[MAX_SUM_WORDS] words;

// A contribution, a partial sum, or a result.
#define IS_SUM(gradlane) (gradlane.kind & ~KIND_REPAIR == KIND_DATA && gradlane.flags & FLAG_SUM != 0)
// A result. Of whatever switch it came, it is this one's now.
#define SUMMED_HERE(hdr) (hdr.sum.isValid() && hdr.gradlane.flags & FLAG_PULL != 0)

// What the UDP checksum of a SUM is of, but for its lanes. Addresses are of IPv6; ::ffff:a.b.c.d has the same sum as
// a.b.c.d, as 0xFFFF is a zero of one's complement, so that one pseudo-header does for both.
#define SUM_CHECKSUM_INPUT(hdr, source, destination) \
    source, destination, 8w0, PROTOCOL_UDP, hdr.udp.length, hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.length, \
    hdr.gradlane, hdr.sum

#endif

#include "../shared/headers.p4"
