// SPDX-License-Identifier: Apache-2.0
// The headers of a packet. With -DAGGREGATION also those of a SUM, whose lanes each target has in its own way.

#ifndef AGGREGATION

#define SUM_HEADERS

#else

#include "../shared/sums.p4"

// The lanes of a slice, one word, all of which are added in one pass: two of 32 bits, or four of 16, in each register.
// They have room for the sum, so nothing is carried from one into the next.
#define EACH_PAIR(DO) \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define PAIR_FIELDS(n) bit<32> first_##n; bit<32> second_##n;

header lanes_h {
    EACH_PAIR(PAIR_FIELDS)
}

#define SUM_HEADERS sum_h sum; lanes_h lanes;

#endif

#include "../shared/headers.p4"
