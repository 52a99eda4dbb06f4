// SPDX-License-Identifier: Apache-2.0
// A label stack parsed in a loop: next, last, lastIndex, and what happens when it is full.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> code; bit<8> count; }
header label_t { bit<20> label; bit<3> exp; bit<1> bottom; bit<8> ttl; }
header after_t { bit<16> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; label_t[4] labels; after_t after; }
struct metadata_t { bit<8> last; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition label;
    }
    state label {
        packet.extract(h.labels.next);
        m.last = (bit<8>)h.labels.lastIndex;
        transition select(h.labels.last.bottom, h.labels.last.exp) {
            (1, 7): accept;
            (1, _): after;
            (0, _): label;
        }
    }
    state after {
        packet.extract(h.after);
        transition accept;
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.count = m.last;
            h.subject.code = 0;
            if (s.parser_error == error.StackOutOfBounds) { h.subject.code = 1; }
            if (s.parser_error == error.PacketTooShort) { h.subject.code = 2; }
            if (h.labels[0].isValid()) { h.labels[0].ttl = h.labels[0].ttl - 1; }
            if (h.labels[3].isValid()) { h.labels[3].label = h.labels[0].label; }
        }
    }
}

#include "include/rest.p4"
