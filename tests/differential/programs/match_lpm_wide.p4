// SPDX-License-Identifier: Apache-2.0
// Longest prefix over 128 bits, as for IPv6, with prefixes that end inside a byte.
#include "include/base.p4"

header subject_t { bit<128> a; bit<16> r; }
HEADERS
NO_METADATA

INGRESS {
    action found(bit<16> v) { h.subject.r = v; }
    table routes {
        key = { h.subject.a: lpm; }
        actions = { found; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { routes.apply(); }
    }
}

#include "include/rest.p4"
