// SPDX-License-Identifier: Apache-2.0
// Action data of many widths, parameters without direction used in expressions, directed parameters.
#include "include/base.p4"

header subject_t { bit<8> a; bit<1> b; bit<7> c; bit<48> d; bit<128> e; bit<33> f; bit<7> gap; bit<16> g; }
HEADERS
NO_METADATA

INGRESS {
    action all(bit<1> b, bit<7> c, bit<48> d, bit<128> e, bit<33> f) {
        h.subject.b = b;
        h.subject.c = c;
        h.subject.d = d;
        h.subject.e = e + (bit<128>)h.subject.a;
        h.subject.f = f;
    }
    action directed(inout bit<16> x, in bit<8> y) { x = x + (bit<16>)y; }
    table parameters {
        key = { h.subject.a: exact; }
        actions = { all; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            parameters.apply();
            directed(h.subject.g, h.subject.a);
        }
    }
}

#include "include/rest.p4"
