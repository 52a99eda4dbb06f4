// SPDX-License-Identifier: Apache-2.0
// packet_length in egress: after headers were added, removed, assigned, pushed and popped, and after truncate.
#define OWN_EGRESS
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> how; bit<8> n; bit<32> before; bit<32> after; }
header extra_t { bit<40> v; }
header text_t { varbit<128> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; extra_t extra; extra_t other; extra_t[3] pile; text_t text; text_t more; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.how) {
            0x40 &&& 0x40: text;
            0x20 &&& 0x20: pile;
            default: accept;
        }
    }
    state text { packet.extract(h.text, (bit<32>)h.subject.n[3:0] << 3); transition accept; }
    state pile { packet.extract(h.pile.next); packet.extract(h.extra); transition accept; }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.before = s.packet_length;
            if (h.subject.how[0:0] == 1) { h.extra.setValid(); }
            if (h.subject.how[1:1] == 1) { h.extra.setInvalid(); }
            if (h.subject.how[2:2] == 1) { h.other = h.extra; }
            if (h.subject.how[3:3] == 1) { h.pile.push_front(1); h.pile[0].setValid(); }
            if (h.subject.how[4:4] == 1) { h.pile.pop_front(1); }
            if (h.subject.how[7:7] == 1) { truncate(20); h.more = h.text; h.text.setInvalid(); }
        }
    }
}

EGRESS { apply { if (h.subject.isValid()) { h.subject.after = s.packet_length; } } }

#include "include/rest.p4"
