// SPDX-License-Identifier: Apache-2.0
// Parser value sets that the control plane fills: one of a field, one of two fields. (9 and 17 bits, because BMv2's own
// command line writes members of whole bytes with a byte too many.)
#define OWN_PARSER
#include "include/base.p4"

header subject_t {
    bit<9> kind;
    bit<7> gap;
    bit<8> a;
    bit<8> r;
}
header extra_t { bit<16> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; extra_t extra; }
struct metadata_t { bit<8> way; }
struct pair_t { bit<9> kind; bit<8> a; }

PARSER {
    value_set<bit<9>>(8) kinds;
    value_set<pair_t>(8) pairs;
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.kind) {
            kinds: known;
            0x177: accept;
            default: other;
        }
    }
    state known {
        m.way = 1;
        packet.extract(h.extra);
        transition accept;
    }
    state other {
        m.way = 2;
        transition select(h.subject.kind, h.subject.a) {
            pairs: known;
            default: accept;
        }
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) { h.subject.r = m.way; }
        if (h.extra.isValid()) { h.extra.v = h.extra.v + 1; }
    }
}

#include "include/rest.p4"
