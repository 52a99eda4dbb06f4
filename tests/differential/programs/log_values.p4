// SPDX-License-Identifier: Apache-2.0
// Messages with wide, signed, many and whole-header values leave the frame as it is; a copy of the standard metadata that
// is dropped leaves the frame alone as well.
#include "include/base.p4"

header subject_t { bit<8> a; int<8> b; bit<128> c; int<100> d; bit<4> e; bit<24> f; bit<128> g; }
HEADERS
struct metadata_t { error problem; bool yes; }

INGRESS {
    apply {
        FORWARD
        m.problem = s.parser_error;
        m.yes = h.subject.isValid();
        if (h.subject.isValid()) {
            log_msg("a {} b {} c {} d {} e {} f {} g {} a {} b {} c {}", { h.subject.a, h.subject.b, h.subject.c,
                h.subject.d, h.subject.e, h.subject.f, h.subject.g, h.subject.a, h.subject.b, h.subject.c });
            log_msg("whole {}", { h.subject });
            log_msg("error {} yes {}", { m.problem, m.yes });
            if (h.subject.a == 7) { mark_to_drop(s); s.egress_spec = 2; }
        }
    }
}

#include "include/rest.p4"
