// SPDX-License-Identifier: Apache-2.0
// Elements of a stack read and written at an index that a field gives, in ingress.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> index; bit<8> r; }
header item_t { bit<8> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; item_t[4] items; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        packet.extract(h.items.next);
        packet.extract(h.items.next);
        packet.extract(h.items.next);
        packet.extract(h.items.next);
        transition accept;
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.items[3].isValid()) {
            bit<2> index = h.subject.index[1:0];
            h.subject.r = h.items[index].v;
            h.items[index].v = 0x77;
        }
    }
}

#include "include/rest.p4"
