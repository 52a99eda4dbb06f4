// SPDX-License-Identifier: Apache-2.0
// Several field lists, fields in more than one of them, standard metadata kept, the last request of several winning.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> how; bit<8> again; bit<8> x; bit<16> y; bit<8> z; bit<128> w; bit<8> kind; bit<16> port; }
HEADERS
struct inner_t { @field_list(2, 3) bit<16> y; @field_list(0) bit<128> w; }
struct metadata_t {
    @field_list(1, 3) bit<8> x;
    @field_list(3) bit<1> flag;
    inner_t inner;
    @field_list(0, 1, 2, 3) bit<8> round;
    @field_list(2) bool seen;
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (m.round == 0) {
                m.x = h.subject.x + 1;
                m.inner.y = h.subject.y + 1;
                m.inner.w = h.subject.w;
                m.flag = 1;
                m.seen = true;
                m.round = 1;
                switch (h.subject.how) {
                    0: { resubmit_preserving_field_list(1); }
                    1: { resubmit_preserving_field_list(2); resubmit_preserving_field_list(3); }
                    2: { clone_preserving_field_list(CloneType.I2E, 1, 3); clone_preserving_field_list(CloneType.I2E, 2, 2); }
                    3: { clone_preserving_field_list(CloneType.I2E, 1, 2); resubmit_preserving_field_list(3); }
                    default: { }
                }
            }
            h.subject.z = 0;
            if (m.seen) { h.subject.z = 0x80; }
            h.subject.z[0:0] = m.flag;
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            h.subject.x = m.x;
            h.subject.y = m.inner.y;
            h.subject.w = m.inner.w;
            h.subject.kind = (bit<8>)s.instance_type;
            h.subject.port = (bit<16>)s.ingress_port;
            if (h.subject.again == 1 && s.instance_type == 0) { h.subject.again = 0; recirculate_preserving_field_list(2); }
            if (h.subject.again == 2 && s.instance_type == 0) { clone_preserving_field_list(CloneType.E2E, 2, 1); }
            if (h.subject.again == 3 && s.instance_type == 0) {
                h.subject.again = 0;
                recirculate_preserving_field_list(1);
                recirculate_preserving_field_list(3);
            }
        }
    }
}

#include "include/rest.p4"
