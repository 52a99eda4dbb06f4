// SPDX-License-Identifier: Apache-2.0
// The queue that a frame finds in a switch that holds one frame at a time.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> a; bit<32> enqueued; }
HEADERS
NO_METADATA

INGRESS {
    apply { FORWARD }
}

EGRESS {
    apply {
        if (h.subject.isValid()) { h.subject.enqueued = (bit<32>)s.enq_qdepth; }
    }
}

#include "include/rest.p4"
