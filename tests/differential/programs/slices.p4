// SPDX-License-Identifier: Apache-2.0
// Slices read, slices written, concatenation.
#include "include/base.p4"

header subject_t {
    bit<32> a;
    bit<48> b;
    bit<64> c;
    bit<24> d;
    bit<16> e;
    bit<80> f;
}
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            bit<24> middle = h.subject.a[27:4];
            h.subject.f = h.subject.e ++ h.subject.b ++ h.subject.a[15:0];
            h.subject.a[7:0] = h.subject.b[47:40];
            h.subject.a[31:29] = h.subject.c[2:0];
            h.subject.b[40:9] = h.subject.c[63:32];
            h.subject.c[0:0] = h.subject.e[15:15];
            h.subject.d = middle;
            h.subject.e = h.subject.c[3:0] ++ h.subject.d[11:0];
        }
    }
}

#include "include/rest.p4"
