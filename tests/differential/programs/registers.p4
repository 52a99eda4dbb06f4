// SPDX-License-Identifier: Apache-2.0
// Registers read and written by index in ingress and egress, of several widths.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> index; bit<32> v; bit<32> r1; bit<8> r2; }
HEADERS
NO_METADATA

INGRESS {
    register<bit<32>>(16) sums;
    register<bit<5>>(16) counts;
    apply {
        FORWARD
        if (h.subject.isValid()) {
            bit<32> index = (bit<32>)h.subject.index[3:0];
            bit<32> sum;
            bit<5> count;
            sums.read(sum, index);
            sum = sum + h.subject.v;
            sums.write(index, sum);
            counts.read(count, index);
            count = count + 1;
            counts.write(index, count);
            h.subject.r1 = sum;
            h.subject.r2 = (bit<8>)count;
        }
    }
}

EGRESS {
    register<bit<48>>(8) senders;
    apply { if (h.subject.isValid()) { senders.write((bit<32>)h.subject.index[2:0], h.ethernet.src); } }
}

#include "include/rest.p4"
