// SPDX-License-Identifier: Apache-2.0
// Action selectors of several algorithms and of keys of odd widths: which member of a group a frame gets.
#include "include/base.p4"

header subject_t { bit<8> a; bit<13> b; bit<3> c; bit<72> d; bit<8> r1; bit<8> r2; bit<8> r3; bit<8> r4; }
HEADERS
struct metadata_t { bit<9> port; }

INGRESS {
    action_selector(HashAlgorithm.crc32, 16, 16) by_crc32;
    action_selector(HashAlgorithm.csum16, 16, 16) by_csum;
    action_selector(HashAlgorithm.identity, 16, 8) by_identity;
    action_selector(HashAlgorithm.xor16, 16, 10) by_xor;
    action set1(bit<8> v) { h.subject.r1 = v; }
    action set2(bit<8> v) { h.subject.r2 = v; }
    action set3(bit<8> v) { h.subject.r3 = v; }
    action set4(bit<8> v) { h.subject.r4 = v; }
    table t1 { key = { h.subject.a: ternary; h.subject.b: selector; h.subject.d: selector; } actions = { set1; NoAction; } implementation = by_crc32; size = 8; }
    table t2 { key = { h.subject.a: exact; h.subject.b: selector; h.subject.c: selector; h.subject.d: selector; } actions = { set2; NoAction; } implementation = by_csum; size = 8; }
    table t3 { key = { h.subject.a: lpm; h.subject.c: selector; m.port: selector; } actions = { set3; NoAction; } implementation = by_identity; size = 8; }
    table t4 { key = { h.subject.a: exact; h.ethernet.src: selector; h.subject.b: selector; } actions = { set4; NoAction; } implementation = by_xor; size = 8; }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            m.port = s.ingress_port;
            t1.apply();
            t2.apply();
            t3.apply();
            t4.apply();
        }
    }
}

#include "include/rest.p4"
