// SPDX-License-Identifier: Apache-2.0
// The queue that a frame asks for doesn't change the frame, and egress reads the priority as it was set.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> class; bit<8> r; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) { s.priority = h.subject.class[2:0]; }
    }
}

EGRESS {
    apply { if (h.subject.isValid()) { h.subject.r = (bit<8>)s.priority; } }
}

#include "include/rest.p4"
