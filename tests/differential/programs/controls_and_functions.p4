// SPDX-License-Identifier: Apache-2.0
// Controls called from controls, functions, local variables that start anew with every packet.
#include "include/base.p4"

header subject_t { bit<8> a; bit<8> b; bit<16> r; }
HEADERS
NO_METADATA

bit<16> larger(in bit<16> x, in bit<16> y) {
    if (x > y) { return x; }
    return y;
}

control Twice(inout bit<8> v, in bit<8> limit) {
    action double() { v = v << 1; }
    table doubling {
        key = { limit: ternary; }
        actions = { double; NoAction; }
        const default_action = NoAction();
        const entries = { 0x80 &&& 0x80: double(); 0x01: double(); }
    }
    apply { doubling.apply(); }
}

INGRESS {
    Twice() first;
    Twice() second;
    apply {
        FORWARD
        if (h.subject.isValid()) {
            bit<8> limit = h.subject.b;
            first.apply(h.subject.a, limit);
            limit = limit + 1;
            second.apply(h.subject.a, limit);
            h.subject.r = larger((bit<16>)h.subject.a, (bit<16>)h.subject.b << 1);
        }
    }
}

#include "include/rest.p4"
