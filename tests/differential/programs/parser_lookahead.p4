// SPDX-License-Identifier: Apache-2.0
// lookahead of bits, of a part of a byte and of a header, deciding what is extracted; past the end it is an error.
#define OWN_PARSER
#include "include/base.p4"

header subject_t {
    bit<3> a;
    bit<5> b;
    bit<16> seen;
}
header tag_t { bit<12> id; bit<4> kind; }
struct headers_t { ethernet_t ethernet; subject_t subject; tag_t tag; tag_t second; }
struct metadata_t { bit<16> seen; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(packet.lookahead<bit<4>>()) {
            0: accept;
            1: whole;
            2: wide;
            default: tag;
        }
    }
    state whole {
        tag_t ahead = packet.lookahead<tag_t>();
        m.seen = (bit<16>)ahead.id;
        transition select(ahead.kind) { 0x3: tag; default: accept; }
    }
    state wide {
        m.seen = packet.lookahead<bit<48>>()[15:0];
        transition tag;
    }
    state tag {
        packet.extract(h.tag);
        transition select(h.tag.kind, packet.lookahead<bit<8>>()) {
            (1, _): second;
            (_, 0x55): second;
            default: accept;
        }
    }
    state second {
        packet.extract(h.second);
        transition accept;
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) { h.subject.seen = m.seen; }
    }
}

#include "include/rest.p4"
