// SPDX-License-Identifier: Apache-2.0
// What a deparser may do besides emitting: messages, assertions, random numbers, a digest that comes too late.
#define OWN_DEPARSER
#include "include/base.p4"

header subject_t { bit<8> a; bit<16> b; bit<8> r; }
HEADERS
NO_METADATA
struct seen_t { bit<48> src; bit<8> a; }

INGRESS { apply { FORWARD if (h.subject.isValid()) { h.subject.r = h.subject.a + 1; } } }

DEPARSER {
    bit<8> drawn;
    apply {
        packet.emit(h.ethernet);
        log_msg("deparsing {} {}", { h.subject.a, h.ethernet.src });
        assert(h.ethernet.src != 0xd1d2d3d4d5d6);
        assume(h.subject.a < 255 || h.subject.b != 0xd1d2);
        random(drawn, 8w1, 8w9);
        assert(drawn > 0 && drawn < 10);
        digest<seen_t>(1, { h.ethernet.src, h.subject.a });
        packet.emit(h.subject);
    }
}

#include "include/rest.p4"
