// SPDX-License-Identifier: Apache-2.0
// Groups of an action selector: the member is chosen by a hash of the selector fields, or named directly.
#include "include/base.p4"

header subject_t { bit<8> a; bit<32> b; bit<32> c; bit<8> d; bit<8> r; }
HEADERS
NO_METADATA

INGRESS {
    action_selector(HashAlgorithm.crc16, 32, 16) members;
    action set_port(bit<9> port) { s.egress_spec = port; h.subject.r = (bit<8>)port; }
    action mark(bit<8> v) { h.subject.r = v; }
    table routes {
        key = { h.subject.a: exact; h.subject.b: selector; h.subject.c: selector; h.subject.d: selector; }
        actions = { set_port; mark; NoAction; }
        implementation = members;
        size = 16;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { routes.apply(); }
    }
}

#include "include/rest.p4"
