// SPDX-License-Identifier: Apache-2.0
// Cases of a select that anything matches in front of others: BMv2 takes these others first, and of such cases the last.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> a; bit<4> b; bit<4> c; bit<8> r; }
HEADERS
struct metadata_t { bit<8> way; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.a, h.subject.b) {
            (1, _): one;
            (_, 0..15): two;
            (2, 3): three;
            (0 &&& 0, _): four;
            (7, 7 &&& 3): two;
        }
    }
    state one {
        m.way = 1;
        transition select(h.subject.b, h.subject.c) { (_, _): three; (5, _): two; (_, 6..7): four; }
    }
    state two { m.way = m.way + 2; transition accept; }
    state three { m.way = m.way + 0x10; transition accept; }
    state four { m.way = m.way + 0x40; transition accept; }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) { h.subject.r = m.way; }
    }
}

#include "include/rest.p4"
