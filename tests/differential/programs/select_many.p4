// SPDX-License-Identifier: Apache-2.0
// select over wide fields, several keys with masks, ranges and values, bool, validity, errors of width, and a loop.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<70> w; bit<3> x; int<7> y; bit<8> z; bit<1> f; bit<7> n; bit<8> r; }
header item_t { bit<4> kind; bit<12> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; item_t[5] items; }
struct metadata_t { bit<8> way; bool even; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        m.even = h.subject.n[0:0] == 0;
        transition select(h.subject.w, h.subject.x, h.subject.y) {
            (0x3fffffffffffffffff, _, _): way1;
            (0x123000000000000000 &&& 0x3ff000000000000000, 1..4, _): way2;
            (0, 7, -1): way3;
            (_, 0b101 &&& 0b101, 5): way4;
            (1..1000, _, _): way5;
            default: way6;
        }
    }
    state way1 { m.way = 1; transition flags; }
    state way2 { m.way = 2; transition flags; }
    state way3 { m.way = 3; transition flags; }
    state way4 { m.way = 4; transition flags; }
    state way5 { m.way = 5; transition items; }
    state way6 { m.way = 6; transition items; }
    state flags {
        transition select(m.even, h.subject.f, h.subject.z) {
            (true, 1, 0..127): items;
            (false, _, 128 &&& 128): accept;
            (_, 0, _): items;
            default: accept;
        }
    }
    state items {
        packet.extract(h.items.next);
        transition select(h.items.last.kind, packet.lookahead<bit<12>>()) {
            (0, _): accept;
            (8 &&& 8, 0x0..0x3ff): items;
            (_, 0x800 &&& 0x800): items;
            default: accept;
        }
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.r = m.way;
            if (s.parser_error != error.NoError) { h.subject.r = h.subject.r | 0x80; }
            if (h.items[4].isValid()) { h.subject.r = h.subject.r | 0x40; }
        }
    }
}

#include "include/rest.p4"
