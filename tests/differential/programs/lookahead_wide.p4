// SPDX-License-Identifier: Apache-2.0
// lookahead of wide and odd widths, signed, of headers, behind a varbit, at the very end of the frame.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> kind; bit<8> n; bit<136> seen; bit<8> r; }
header text_t { varbit<64> v; }
header pair_t { bit<5> a; bit<70> b; bit<5> c; }
struct headers_t { ethernet_t ethernet; subject_t subject; text_t text; pair_t pair; }
struct metadata_t { bit<136> seen; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.kind) {
            0: accept;
            1: wide;
            2: header_ahead;
            3: text;
            4: bits;
            default: ending;
        }
    }
    state wide { m.seen = packet.lookahead<bit<136>>(); transition accept; }
    state header_ahead {
        pair_t ahead = packet.lookahead<pair_t>();
        m.seen = (bit<136>)ahead.b;
        transition select(ahead.c) { 0..15: pair; default: accept; }
    }
    state text {
        packet.extract(h.text, (bit<32>)h.subject.n[2:0] << 3);
        bit<67> ahead = packet.lookahead<bit<67>>();
        m.seen = (bit<136>)ahead;
        transition select(packet.lookahead<bit<3>>()) { 0..3: pair; default: accept; }
    }
    state bits {
        bit<1> first = packet.lookahead<bit<1>>();
        m.seen[0:0] = first;
        int<7> signed = packet.lookahead<int<7>>();
        m.seen[20:4] = (bit<17>)(int<17>)signed;
        m.seen[135:100] = packet.lookahead<bit<64>>()[40:5];
        transition accept;
    }
    state ending {
        packet.advance((bit<32>)h.subject.n << 3);
        bit<8> ahead = packet.lookahead<bit<8>>();
        m.seen = (bit<136>)ahead;
        transition accept;
    }
    state pair { packet.extract(h.pair); transition accept; }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.seen = m.seen;
            h.subject.r = s.parser_error == error.PacketTooShort ? 8w1 : 0;
        }
    }
}

#include "include/rest.p4"
