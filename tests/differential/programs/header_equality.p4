// SPDX-License-Identifier: Apache-2.0
// Headers compared whole, valid and invalid, and structs of fields.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> next; bit<8> r; }
header item_t { bit<4> a; bit<12> b; }
struct headers_t { ethernet_t ethernet; subject_t subject; item_t x; item_t y; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.next) { 1: x; 2: y; 3: both; default: accept; }
    }
    state x { packet.extract(h.x); transition accept; }
    state y { packet.extract(h.y); transition accept; }
    state both { packet.extract(h.x); transition y; }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.r = 0;
            if (h.x == h.y) { h.subject.r = 1; }
            if (h.x != h.y) { h.subject.r = h.subject.r | 2; }
        }
    }
}

#include "include/rest.p4"
