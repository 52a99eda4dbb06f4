// SPDX-License-Identifier: Apache-2.0
// Parser value sets whose members come and go between frames. (Widths of 9 and 17 bits: see parser_value_set.)
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<9> kind; bit<7> gap; bit<8> a; bit<8> r; }
struct headers_t { ethernet_t ethernet; subject_t subject; }
struct metadata_t { bit<8> way; }
struct pair_t { bit<9> kind; bit<8> a; }

PARSER {
    value_set<bit<9>>(8) kinds;
    value_set<pair_t>(4) pairs;
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.kind, h.subject.a) {
            pairs: both;
            (0, _): accept;
            default: one;
        }
    }
    state both { m.way = 2; transition accept; }
    state one {
        transition select(h.subject.kind) {
            kinds: known;
            default: accept;
        }
    }
    state known { m.way = 1; transition accept; }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) { h.subject.r = m.way; }
    }
}

#include "include/rest.p4"
