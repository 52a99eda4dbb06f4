// SPDX-License-Identifier: Apache-2.0
// Entries that carry the set of their actions themselves.
#include "include/base.p4"

header subject_t { bit<8> a; bit<32> b; bit<8> r; }
HEADERS
NO_METADATA

INGRESS {
    action_selector(HashAlgorithm.crc32, 32, 16) members;
    action mark(bit<8> v) { h.subject.r = v; }
    table routes {
        key = { h.subject.a: lpm; h.subject.b: selector; }
        actions = { mark; NoAction; }
        implementation = members;
        size = 16;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (routes.apply().hit) { h.subject.a = 0xee; }
        }
    }
}

#include "include/rest.p4"
