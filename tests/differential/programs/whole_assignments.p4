// SPDX-License-Identifier: Apache-2.0
// Stacks, unions and structs of headers assigned whole, also by way of local variables.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> op; bit<8> count; bit<8> kind; }
header item_t { bit<8> v; }
header byte_t { bit<8> v; }
header word_t { bit<16> v; }
header_union choice_t { byte_t one; word_t two; }
struct pair_t { item_t left; item_t right; }
struct headers_t { ethernet_t ethernet; subject_t subject; item_t[3] items; item_t[3] others; choice_t choice; choice_t another; pair_t pair; pair_t twin; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.count) { 0: choice; default: item; }
    }
    state item {
        packet.extract(h.items.next);
        transition select(h.items.last.v) { 0x80 &&& 0x80: choice; default: item; }
    }
    state choice {
        transition select(h.subject.kind) { 1: one; 2: two; 3: pair; default: accept; }
    }
    state one { packet.extract(h.choice.one); transition accept; }
    state two { packet.extract(h.choice.two); transition pair; }
    state pair { packet.extract(h.pair.right); transition accept; }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (h.subject.op == 1) { h.others = h.items; }
            if (h.subject.op == 2) { h.another = h.choice; }
            if (h.subject.op == 3) { h.twin = h.pair; }
            if (h.subject.op == 4) { item_t[3] kept = h.items; h.items.pop_front(1); h.others = kept; }
            if (h.subject.op == 5) { pair_t kept = h.pair; h.pair.right.setInvalid(); h.twin = kept; }
        }
    }
}

#include "include/rest.p4"
