// SPDX-License-Identifier: Apache-2.0
// Nested conditions, boolean operators that don't evaluate both sides, the conditional operator, bool in metadata.
#include "include/base.p4"

header subject_t {
    bit<8> a;
    bit<8> b;
    bit<8> c;
    bit<8> path;
    bit<16> d;
}
HEADERS
struct metadata_t { bool flag; bit<8> x; }

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            m.flag = h.subject.a > 100 && h.subject.b != h.subject.c;
            m.x = h.subject.a == h.subject.b ? h.subject.c : h.subject.a - h.subject.b;
            if (m.flag) {
                if (h.subject.c < 10 || h.subject.b >= 250) { h.subject.path = 1; }
                else if (!(h.subject.c == 0x42)) { h.subject.path = m.x; }
                else { h.subject.path = 3; }
            } else if (m.x <= 16) {
                h.subject.path = 4;
            }
            h.subject.d = m.flag != (h.subject.c > 7) ? 16w0xaaaa : (bit<16>)m.x;
        }
    }
}

#include "include/rest.p4"
