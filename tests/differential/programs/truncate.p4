// SPDX-License-Identifier: Apache-2.0
// truncate in ingress and in egress, shorter and longer than the frame, also inside the headers.
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> length; bit<8> later; bit<32> a; }
header extra_t { bit<32> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; extra_t extra; }
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (h.subject.length != 0) { truncate((bit<32>)h.subject.length); }
            if (h.subject.a[0:0] == 1) { h.extra.setValid(); h.extra.v = 0xe0e1e2e3; }
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid() && h.subject.later > 0x80) { truncate((bit<32>)h.subject.later - 0x70); }
    }
}

#include "include/rest.p4"
