// SPDX-License-Identifier: Apache-2.0
// Statements in the parser: fields assigned, headers made valid, one header extracted twice, arithmetic.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> kind; bit<8> a; bit<16> sum; }
header item_t { bit<8> v; bit<8> more; }
header note_t { bit<16> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; item_t item; note_t note; }
struct metadata_t { bit<16> sum; bit<8> rounds; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        m.sum = (bit<16>)h.subject.a;
        transition select(h.subject.kind) { 1: item; 2: note; default: accept; }
    }
    state item {
        packet.extract(h.item);
        m.sum = m.sum + ((bit<16>)h.item.v << 4);
        m.rounds = m.rounds + 1;
        h.subject.a = h.subject.a ^ h.item.v;
        transition select(h.item.more, m.rounds) { (1, 1): item; (1, 2): item; (2, _): note; default: accept; }
    }
    state note {
        h.note.setValid();
        h.note.v = m.sum - 1;
        transition select(h.subject.a[0:0]) { 1: accept; default: undo; }
    }
    state undo {
        h.note.setInvalid();
        transition accept;
    }
}

INGRESS {
    apply { FORWARD if (h.subject.isValid()) { h.subject.sum = m.sum; } }
}

#include "include/rest.p4"
