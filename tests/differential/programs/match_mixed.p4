// SPDX-License-Identifier: Apache-2.0
// Exact, longest prefix and ternary in one table, keys that are expressions and masks, standard metadata as a key.
#include "include/base.p4"

header subject_t { bit<8> a; bit<32> b; bit<16> c; bit<8> r1; bit<8> r2; }
HEADERS
NO_METADATA

INGRESS {
    action found(bit<8> v) { h.subject.r1 = v; }
    action computed(bit<8> v) { h.subject.r2 = v; }
    table mixed {
        key = { h.subject.a: exact; h.subject.b: lpm; h.subject.c: ternary; }
        actions = { found; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    table expressions {
        key = {
            h.subject.a & 0x0f: exact @name("masked");
            h.subject.b[15:8]: exact @name("slice");
            s.ingress_port: exact @name("port");
        }
        actions = { computed; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { mixed.apply(); expressions.apply(); }
    }
}

#include "include/rest.p4"
