// SPDX-License-Identifier: Apache-2.0
// random between equal bounds is that bound, and between others within them.
#include "include/base.p4"

header subject_t { bit<16> a; bit<16> r1; bit<8> r2; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            bit<16> drawn;
            random(h.subject.r1, h.subject.a, h.subject.a);
            random(drawn, 16w10, 16w20);
            h.subject.r2 = drawn >= 10 && drawn <= 20 ? 8w1 : 0;
        }
    }
}

#include "include/rest.p4"
