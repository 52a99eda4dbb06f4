// SPDX-License-Identifier: Apache-2.0
// push_front and pop_front by one and by more than there are, elements by constant index, set valid and invalid.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> op; bit<8> count; }
header item_t { bit<8> v; bit<8> more; }
struct headers_t { ethernet_t ethernet; subject_t subject; item_t[3] items; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.count) { 0: accept; default: item; }
    }
    state item {
        packet.extract(h.items.next);
        transition select(h.items.last.more) { 1: item; default: accept; }
    }
}

INGRESS {
    action push_one() { h.items.push_front(1); h.items[0].setValid(); h.items[0].v = 0xaa; h.items[0].more = 1; }
    action push_two() { h.items.push_front(2); h.items[0].setValid(); h.items[0].v = 0xbb; h.items[0].more = 0; h.items[1].setValid(); h.items[1].v = 0xcc; h.items[1].more = 0; }
    action push_hole() { h.items.push_front(1); }
    action pop_one() { h.items.pop_front(1); }
    action pop_two() { h.items.pop_front(2); }
    action pop_all() { h.items.pop_front(3); }
    action swap() { item_t kept = h.items[0]; h.items[0] = h.items[1]; h.items[1] = kept; }
    action drop_middle() { h.items[1].setInvalid(); }
    table operations {
        key = { h.subject.op: exact; }
        actions = { push_one; push_two; push_hole; pop_one; pop_two; pop_all; swap; drop_middle; NoAction; }
        const default_action = NoAction();
        const entries = { 1: push_one(); 2: push_two(); 3: push_hole(); 4: pop_one(); 5: pop_two(); 6: pop_all(); 7: swap(); 8: drop_middle(); }
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { operations.apply(); }
    }
}

#include "include/rest.p4"
