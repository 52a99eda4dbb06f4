// SPDX-License-Identifier: Apache-2.0
// A deparser that sends headers in another order than they came, some twice removed and added.
#define OWN_PARSER
#define OWN_DEPARSER
#include "include/base.p4"

header subject_t { bit<8> kind; bit<8> a; }
header item_t { bit<24> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; item_t one; item_t two; item_t three; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.kind) { 1: one; 2: two; default: accept; }
    }
    state one { packet.extract(h.one); transition two; }
    state two { packet.extract(h.two); transition accept; }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid() && h.subject.a[7:7] == 1) { h.three.setValid(); h.three.v = 0x030303; }
    }
}

DEPARSER {
    apply {
        packet.emit(h.three);
        packet.emit(h.ethernet);
        packet.emit(h.two);
        packet.emit(h.one);
        packet.emit(h.subject);
    }
}

#include "include/rest.p4"
