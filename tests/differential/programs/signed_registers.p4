// SPDX-License-Identifier: Apache-2.0
// A register of a signed type keeps the lowest value that it has seen.
#include "include/base.p4"

header subject_t { int<16> v; int<16> r; }
HEADERS
NO_METADATA

INGRESS {
    register<int<16>>(1) lowest;
    apply {
        FORWARD
        if (h.subject.isValid()) {
            int<16> low;
            lowest.read(low, 0);
            if (h.subject.v < low) { low = h.subject.v; lowest.write(0, low); }
            h.subject.r = low;
        }
    }
}

#include "include/rest.p4"
