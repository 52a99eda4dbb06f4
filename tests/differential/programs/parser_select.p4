// SPDX-License-Identifier: Apache-2.0
// select over values, masks, ranges, several fields and metadata; default and no case at all.
#define OWN_PARSER
#include "include/base.p4"

header subject_t {
    bit<8> kind;
    bit<4> x;
    bit<4> y;
}
header small_t { bit<8> v; }
header large_t { bit<32> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; small_t small; large_t large; }
struct metadata_t { bit<8> trail; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        m.trail = 1;
        transition select(h.subject.kind) {
            0: accept;
            1: small;
            2..5: large;
            0x80 &&& 0xf0: both;
            0x90 &&& 0xf0: small;
            0xff: reject;
        }
    }
    state both {
        m.trail = m.trail | 2;
        transition select(h.subject.x, h.subject.y) {
            (0, _): small;
            (1..3, 7): large;
            (_, 0x8 &&& 0x8): large;
            default: accept;
        }
    }
    state small {
        packet.extract(h.small);
        m.trail = m.trail + 4;
        transition select(s.ingress_port, h.small.v) {
            (1, 0x7f): large;
            (2 &&& 2, 0x10 &&& 0x10): large;
            default: accept;
        }
    }
    state large {
        packet.extract(h.large);
        m.trail = m.trail + 8;
        transition accept;
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) { h.subject.kind = m.trail; }
    }
}

#include "include/rest.p4"
