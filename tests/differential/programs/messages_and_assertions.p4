// SPDX-License-Identifier: Apache-2.0
// log_msg, assert and assume leave the frame as it is.
#include "include/base.p4"

header subject_t { bit<8> a; bit<8> b; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            log_msg("a frame");
            log_msg("a = {}, b = {}", { h.subject.a, h.subject.b });
            assert(h.subject.isValid());
            assume(h.subject.a >= 0);
            h.subject.b = h.subject.b + 1;
        }
    }
}

#include "include/rest.p4"
