// SPDX-License-Identifier: Apache-2.0
// A header union: whichever member the parser took, changed to another member, made invalid.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> kind; bit<8> op; }
header byte_t { bit<8> v; }
header word_t { bit<16> v; }
header long_t { bit<32> v; }
header_union choice_t { byte_t one; word_t two; long_t four; }
struct headers_t { ethernet_t ethernet; subject_t subject; choice_t choice; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.kind) {
            1: one;
            2: two;
            4: four;
            default: accept;
        }
    }
    state one { packet.extract(h.choice.one); transition accept; }
    state two { packet.extract(h.choice.two); transition accept; }
    state four { packet.extract(h.choice.four); transition accept; }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (h.subject.op == 1 && h.choice.one.isValid()) {
                h.choice.two.setValid();
                h.choice.two.v = 0x2222;
            } else if (h.subject.op == 2 && h.choice.two.isValid()) {
                h.choice.two.setInvalid();
            } else if (h.subject.op == 3) {
                h.choice.four.setValid();
                h.choice.four.v = 0x44444444;
            }
            h.subject.kind = 0;
            if (h.choice.one.isValid()) { h.subject.kind = h.subject.kind | 1; }
            if (h.choice.two.isValid()) { h.subject.kind = h.subject.kind | 2; }
            if (h.choice.four.isValid()) { h.subject.kind = h.subject.kind | 4; }
        }
    }
}

#include "include/rest.p4"
