// SPDX-License-Identifier: Apache-2.0
// Default actions: of the program, constant, replaced by the control plane; tables without a key.
#include "include/base.p4"

header subject_t { bit<8> a; bit<8> r1; bit<8> r2; bit<8> r3; bit<8> r4; }
HEADERS
NO_METADATA

INGRESS {
    action set1(bit<8> v) { h.subject.r1 = v; }
    action set2(bit<8> v) { h.subject.r2 = v; }
    action set3(bit<8> v) { h.subject.r3 = v; }
    action add(bit<8> v, bit<8> w) { h.subject.r4 = v + w; }
    table kept {
        key = { h.subject.a: exact; }
        actions = { set1; }
        default_action = set1(0x31);
        size = 16;
    }
    table constant {
        key = { h.subject.a: exact; }
        actions = { set2; }
        const default_action = set2(0x32);
        size = 16;
    }
    table replaced {
        key = { h.subject.a: exact; }
        actions = { set3; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    table keyless {
        actions = { add; NoAction; }
        default_action = NoAction();
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            kept.apply();
            constant.apply();
            replaced.apply();
            keyless.apply();
        }
    }
}

#include "include/rest.p4"
