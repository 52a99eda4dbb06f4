// SPDX-License-Identifier: Apache-2.0
// The queue that a frame finds, waits in and leaves, in a switch that holds one frame and its markers at a time: what
// depends on the clock is told as whether it is in order.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> a; bit<32> enqueued; bit<8> before; bit<8> times; bit<8> depths; }
HEADERS
NO_METADATA

const bit<32> SECOND = 1000000;

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.before = 0;
            if (s.enq_timestamp == 0) { h.subject.before[0:0] = 1; }
            if (s.enq_qdepth == 0) { h.subject.before[1:1] = 1; }
            if (s.deq_timedelta == 0) { h.subject.before[2:2] = 1; }
            if (s.deq_qdepth == 0) { h.subject.before[3:3] = 1; }
            if (s.egress_global_timestamp == 0) { h.subject.before[4:4] = 1; }
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            bit<32> entered = (bit<32>)s.ingress_global_timestamp;
            bit<32> left = (bit<32>)s.egress_global_timestamp;
            h.subject.enqueued = (bit<32>)s.enq_qdepth;
            h.subject.times = 0;
            if (s.ingress_global_timestamp <= s.egress_global_timestamp) { h.subject.times[0:0] = 1; }
            if (s.enq_timestamp - entered < SECOND) { h.subject.times[1:1] = 1; }
            if (left - s.enq_timestamp < SECOND) { h.subject.times[2:2] = 1; }
            if (s.deq_timedelta < SECOND) { h.subject.times[3:3] = 1; }
            if (s.enq_timestamp + s.deq_timedelta - left < SECOND) { h.subject.times[4:4] = 1; }
            if (s.ingress_global_timestamp[47:32] == 0) { h.subject.times[5:5] = 1; }
            h.subject.depths = 0;
            if (s.deq_qdepth < 8) { h.subject.depths[0:0] = 1; }
        }
    }
}

#include "include/rest.p4"
