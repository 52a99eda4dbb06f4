// SPDX-License-Identifier: Apache-2.0
// Clones at the end of egress: the frame as egress left it, through egress once more.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> session; bit<8> a; bit<8> r1; bit<8> r2; bit<16> r3; }
HEADERS
struct metadata_t {
    @field_list(1)
    bit<8> kept;
    bit<8> lost;
}

INGRESS {
    apply { FORWARD }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            if (s.instance_type == 0) {
                m.kept = h.subject.a;
                m.lost = 0x33;
                h.subject.a = h.subject.a + 1;
                if (h.subject.session[7:6] == 1) {
                    clone_preserving_field_list(CloneType.E2E, (bit<32>)h.subject.session[3:0], 1);
                } else if (h.subject.session[7:6] == 2) {
                    clone(CloneType.E2E, (bit<32>)h.subject.session[3:0]);
                    mark_to_drop(s);
                }
            } else {
                h.subject.r2 = m.kept + m.lost;
            }
            h.subject.r1 = (bit<8>)s.instance_type;
            h.subject.r3 = (bit<16>)s.egress_port;
        }
    }
}

#include "include/rest.p4"
