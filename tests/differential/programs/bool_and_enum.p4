// SPDX-License-Identifier: Apache-2.0
// bool, enum and serializable enum fields, in conditions, in select and as keys.
#define OWN_PARSER
#include "include/base.p4"

enum bit<8> Kind { NONE = 0, RED = 0x11, GREEN = 0x22, BLUE = 0xff }
enum Choice { FIRST, SECOND, THIRD }

header subject_t { Kind kind; bit<7> gap; bool flag; bit<8> r1; bit<8> r2; }
header blue_t { bit<8> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; blue_t blue; }
struct metadata_t { Choice choice; bool both; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.kind) { Kind.BLUE: blue; default: accept; }
    }
    state blue { packet.extract(h.blue); transition accept; }
}

INGRESS {
    action set(bit<8> v) { h.subject.r2 = v; }
    table kinds {
        key = { h.subject.kind: exact; h.subject.flag: exact; }
        actions = { set; NoAction; }
        const default_action = NoAction();
        const entries = { (Kind.RED, true): set(1); (Kind.RED, false): set(2); (Kind.GREEN, true): set(3); (Kind.BLUE, false): set(4); }
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            m.choice = Choice.FIRST;
            if (h.subject.kind == Kind.GREEN) { m.choice = Choice.SECOND; }
            else if (h.blue.isValid() && h.blue.v > 9) { m.choice = Choice.THIRD; }
            m.both = h.subject.flag && m.choice != Choice.FIRST;
            h.subject.r1 = m.choice == Choice.THIRD ? 8w3 : (m.both ? 8w2 : 8w1);
            kinds.apply();
            h.subject.flag = !h.subject.flag;
            if (h.subject.r2 == 4) { h.subject.kind = Kind.NONE; }
        }
    }
}

#include "include/rest.p4"
