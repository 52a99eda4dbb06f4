// SPDX-License-Identifier: Apache-2.0
// Header unions whole: validity of the union, members made valid in turn, unions copied and compared.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<4> first; bit<4> second; bit<8> op; bit<8> r; }
header byte_t { bit<8> v; }
header word_t { bit<16> v; }
header long_t { bit<72> v; }
header_union choice_t { byte_t one; word_t two; long_t nine; }
struct headers_t { ethernet_t ethernet; subject_t subject; choice_t left; choice_t right; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.first) { 1: left1; 2: left2; 3: left9; default: second; }
    }
    state left1 { packet.extract(h.left.one); transition second; }
    state left2 { packet.extract(h.left.two); transition second; }
    state left9 { packet.extract(h.left.nine); transition second; }
    state second {
        transition select(h.subject.second) { 1: right1; 2: right2; 3: right9; default: accept; }
    }
    state right1 { packet.extract(h.right.one); transition accept; }
    state right2 { packet.extract(h.right.two); transition accept; }
    state right9 { packet.extract(h.right.nine); transition accept; }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.r = 0;
            if (h.left.isValid()) { h.subject.r = h.subject.r | 1; }
            if (h.right.isValid()) { h.subject.r = h.subject.r | 2; }
            if (h.left == h.right) { h.subject.r = h.subject.r | 4; }
            switch (h.subject.op[2:0]) {
                0: { h.left = h.right; }
                1: { h.left.one.setValid(); h.left.one.v = 0x11; h.left.nine.setValid(); h.left.nine.v = 0x99; }
                2: { h.left.one.setInvalid(); h.right.two.setInvalid(); }
                3: { h.left.two = h.right.two; }
                4: { h.left.nine.setValid(); h.left.two.setInvalid(); }
                5: { choice_t t = h.left; h.left = h.right; h.right = t; }
                default: { }
            }
            if (h.left.isValid()) { h.subject.r = h.subject.r | 0x10; }
            if (h.right.isValid()) { h.subject.r = h.subject.r | 0x20; }
            if (h.left != h.right) { h.subject.r = h.subject.r | 0x40; }
        }
    }
}

#include "include/rest.p4"
