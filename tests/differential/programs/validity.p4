// SPDX-License-Identifier: Apache-2.0
// Headers added, removed, copied and swapped; validity in conditions and as a table's key.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> op; bit<8> next; }
header item_t { bit<16> a; bit<8> b; }
struct headers_t { ethernet_t ethernet; item_t front; subject_t subject; item_t x; item_t y; item_t back; }
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
    action add_front() { h.front.setValid(); h.front.a = 0xf00d; h.front.b = 1; }
    action remove_x() { h.x.setInvalid(); }
    action copy_x() { h.back = h.x; }
    action move() { h.back = h.y; h.y.setInvalid(); }
    action swap() { item_t kept = h.x; h.x = h.y; h.y = kept; }
    action literal() { h.back = { 0x0102, 3 }; }
    action remove_all() { h.x.setInvalid(); h.y.setInvalid(); h.subject.setInvalid(); h.ethernet.setInvalid(); }
    table by_validity {
        key = { h.subject.op: exact; h.x.isValid(): exact @name("x_valid"); h.y.isValid(): ternary @name("y_valid"); }
        actions = { add_front; remove_x; copy_x; move; swap; literal; remove_all; NoAction; }
        const default_action = NoAction();
        const entries = {
            (1, true, _): add_front();
            (2, true, _): remove_x();
            (2, false, true): literal();
            (3, true, true): copy_x();
            (4, true, true): move();
            (5, true, true): swap();
            (6, true, true): remove_all();
        }
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (h.subject.op == 7) { h.back = h.x; } else { by_validity.apply(); }
            if (h.back.isValid() && !h.x.isValid()) { h.back.b = h.back.b + 1; }
        }
    }
}

#include "include/rest.p4"
