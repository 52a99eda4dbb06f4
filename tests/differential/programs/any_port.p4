// SPDX-License-Identifier: Apache-2.0
// Frames sent to every port number that fits, also set by arithmetic.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<9> port; bit<7> gap; bit<16> r; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) { s.egress_spec = h.subject.port + (bit<9>)h.subject.gap[0:0]; }
    }
}

EGRESS {
    apply { if (h.subject.isValid()) { h.subject.r = (bit<16>)s.egress_port; } }
}

#include "include/rest.p4"
