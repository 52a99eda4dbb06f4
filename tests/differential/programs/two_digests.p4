// SPDX-License-Identifier: Apache-2.0
// Two kinds of digests.
#include "include/base.p4"

header subject_t { bit<8> kind; bit<16> a; bit<128> b; }
HEADERS
NO_METADATA
struct one_t { bit<48> source; bit<16> a; }
struct two_t { bit<48> source; bit<128> b; bit<1> c; }

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (h.subject.kind == 1) { digest<one_t>(1, { h.ethernet.src, h.subject.a }); }
            if (h.subject.kind != 1) { digest<two_t>(1, { h.ethernet.src, h.subject.b, h.subject.a[0:0] }); }
            h.subject.b = 0;
        }
    }
}

#include "include/rest.p4"
