// SPDX-License-Identifier: Apache-2.0
// Queue depths of a switch that holds one frame at a time.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> a; bit<32> enqueued; bit<32> dequeued; }
HEADERS
NO_METADATA

INGRESS {
    apply { FORWARD }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            h.subject.enqueued = (bit<32>)s.enq_qdepth;
            h.subject.dequeued = (bit<32>)s.deq_qdepth;
        }
    }
}

#include "include/rest.p4"
