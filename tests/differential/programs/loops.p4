// SPDX-License-Identifier: Apache-2.0
// Loops in actions: counted, nested, left and continued early.
#include "include/base.p4"

header subject_t { bit<8> kind; bit<8> count; bit<16> a; bit<32> r; }
HEADERS
NO_METADATA

INGRESS {
    action sum() {
        h.subject.r = 0;
        for (bit<8> i = 1; i <= (h.subject.count & 0x1f); i = i + 1) {
            h.subject.r = h.subject.r + (bit<32>)i;
        }
    }
    action nested() {
        h.subject.r = 0;
        for (bit<8> i = 0; i < (h.subject.count & 7); i = i + 1) {
            for (bit<8> j = 0; j < i; j = j + 1) {
                h.subject.r = (h.subject.r << 1) ^ (bit<32>)h.subject.a;
            }
        }
    }
    action early() {
        for (bit<8> i = 0; i < 16; i = i + 1) {
            if (i[0:0] == 1) { continue; }
            if (i == (h.subject.count & 0xf)) { break; }
            h.subject.a = h.subject.a + 3;
        }
    }
    table kinds {
        key = { h.subject.kind: exact; }
        actions = { sum; nested; early; NoAction; }
        const default_action = NoAction();
        const entries = { 1: sum(); 2: nested(); 3: early(); }
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { kinds.apply(); }
    }
}

#include "include/rest.p4"
