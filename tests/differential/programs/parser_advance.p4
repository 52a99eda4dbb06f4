// SPDX-License-Identifier: Apache-2.0
// advance over constant and computed distances, and past the end; what is skipped is not sent.
#define OWN_PARSER
#include "include/base.p4"

header subject_t {
    bit<8> how;
    bit<8> distance;
}
header tail_t { bit<16> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; tail_t tail; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.how) {
            0: fixed;
            1: computed;
            default: accept;
        }
    }
    state fixed {
        packet.advance(24);
        transition tail;
    }
    state computed {
        packet.advance((bit<32>)h.subject.distance << 3);
        transition tail;
    }
    state tail {
        packet.extract(h.tail);
        transition accept;
    }
}

INGRESS {
    apply { FORWARD if (h.tail.isValid()) { h.tail.v = ~h.tail.v; } }
}

#include "include/rest.p4"
