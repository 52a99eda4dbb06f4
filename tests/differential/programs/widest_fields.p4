// SPDX-License-Identifier: Apache-2.0
// Fields of 1024 and 2048 bits: copies, addition, masks, slices at both ends.
#include "include/base.p4"

header subject_t {
    bit<1024> a;
    bit<2048> b;
    bit<32> low;
    bit<32> high;
}
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.low = h.subject.b[31:0];
            h.subject.high = h.subject.b[2047:2016];
            h.subject.b = h.subject.b + (bit<2048>)h.subject.a;
            h.subject.a = h.subject.a & (bit<1024>)(h.subject.b >> 256);
            if (h.subject.low > h.subject.high) { h.subject.b[255:224] = h.subject.low; }
        }
    }
}

#include "include/rest.p4"
