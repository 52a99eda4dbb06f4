// SPDX-License-Identifier: Apache-2.0
// A parser called from the parser, with an argument and a result.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> kind; bit<8> r; }
header item_t { bit<8> kind; bit<16> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; item_t first; item_t second; }
struct metadata_t { bit<8> last; }

parser Item(packet_in packet, out item_t item, in bit<8> skip, out bit<8> kind) {
    state start {
        kind = 0xee;
        transition select(skip) { 1: accept; default: read; }
    }
    state read {
        packet.extract(item);
        kind = item.kind;
        transition accept;
    }
}

PARSER {
    Item() item;
    START
    state subject {
        packet.extract(h.subject);
        item.apply(packet, h.first, h.subject.kind, m.last);
        transition select(m.last) { 7: more; default: accept; }
    }
    state more {
        item.apply(packet, h.second, 0, m.last);
        transition accept;
    }
}

INGRESS {
    apply { FORWARD if (h.subject.isValid()) { h.subject.r = m.last; } }
}

#include "include/rest.p4"
