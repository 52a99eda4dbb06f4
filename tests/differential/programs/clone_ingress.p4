// SPDX-License-Identifier: Apache-2.0
// Clones at the end of ingress: the frame as it came, to the session's port, with the metadata that was listed.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> session; bit<8> a; bit<8> r1; bit<8> r2; bit<16> r3; }
HEADERS
struct metadata_t {
    @field_list(1)
    bit<8> kept;
    bit<8> lost;
    @field_list(1, 2)
    bit<16> number;
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            m.kept = h.subject.a;
            m.lost = 0x77;
            m.number = (bit<16>)h.subject.a + 0x100;
            if (h.subject.session[7:6] == 1) {
                clone_preserving_field_list(CloneType.I2E, (bit<32>)h.subject.session[3:0], 1);
            } else if (h.subject.session[7:6] == 2) {
                clone_preserving_field_list(CloneType.I2E, (bit<32>)h.subject.session[3:0], 2);
            } else if (h.subject.session[7:6] == 3) {
                clone(CloneType.I2E, (bit<32>)h.subject.session[3:0]);
                mark_to_drop(s);
            }
            h.subject.a = 0xff;
            m.kept = m.kept + 1;
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            h.subject.r1 = (bit<8>)s.instance_type;
            h.subject.r2 = m.kept + m.lost;
            h.subject.r3 = m.number;
        }
    }
}

#include "include/rest.p4"
