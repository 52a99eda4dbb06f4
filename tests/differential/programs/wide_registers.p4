// SPDX-License-Identifier: Apache-2.0
// A register of 128 bits: what is written comes back whole.
#include "include/base.p4"

header subject_t { bit<8> index; bit<128> v; bit<128> r; }
HEADERS
NO_METADATA

INGRESS {
    register<bit<128>>(4) values;
    apply {
        FORWARD
        if (h.subject.isValid()) {
            bit<32> index = (bit<32>)h.subject.index[1:0];
            bit<128> v;
            values.read(v, index);
            h.subject.r = v;
            values.write(index, v ^ h.subject.v);
        }
    }
}

#include "include/rest.p4"
