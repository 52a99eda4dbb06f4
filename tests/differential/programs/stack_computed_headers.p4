// SPDX-License-Identifier: Apache-2.0
// Whole elements of a stack at a computed index: made valid and invalid, and copied.
#define OWN_PARSER
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> op; bit<2> i; bit<2> j; bit<4> count; bit<16> length; }
header item_t { bit<8> a; bit<12> b; bit<4> c; }
struct headers_t { ethernet_t ethernet; subject_t subject; item_t[4] items; item_t spare; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.count) {
            0: accept;
            1: one;
            2: two;
            default: three;
        }
    }
    state three { packet.extract(h.items.next); transition two; }
    state two { packet.extract(h.items.next); transition one; }
    state one { packet.extract(h.items.next); transition accept; }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            switch (h.subject.op[2:0]) {
                0: { h.items[h.subject.i].setValid(); }
                1: { h.items[h.subject.i].setInvalid(); }
                3: { h.items[3] = h.items[h.subject.i]; }
                5: { h.spare = h.items[h.subject.i]; }
                6: { h.items[h.subject.j].setValid(); h.items[h.subject.j].b = 0x123; h.items[h.subject.i].setInvalid(); }
                default: { }
            }
        }
    }
}

EGRESS { apply { if (h.subject.isValid()) { h.subject.length = (bit<16>)s.packet_length; } } }

#include "include/rest.p4"
