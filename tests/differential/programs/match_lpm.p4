// SPDX-License-Identifier: Apache-2.0
// Longest prefix: nested prefixes of 32 bits, the empty prefix, the full one, and behind an exact field.
#include "include/base.p4"

header subject_t { bit<32> a; bit<8> vrf; bit<16> b; bit<8> r1; bit<8> r2; }
HEADERS
NO_METADATA

INGRESS {
    action first(bit<8> v) { h.subject.r1 = v; }
    action second(bit<8> v) { h.subject.r2 = v; }
    table routes {
        key = { h.subject.a: lpm; }
        actions = { first; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    table vrf_routes {
        key = { h.subject.vrf: exact; h.subject.b: lpm; }
        actions = { second; NoAction; }
        default_action = second(0xfe);
        size = 64;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { routes.apply(); vrf_routes.apply(); }
    }
}

#include "include/rest.p4"
