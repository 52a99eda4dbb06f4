// SPDX-License-Identifier: Apache-2.0
// Types that controllers see with another width: in keys of every match kind, and in parameters.
// BMv2 does not translate, so it needs widths of as many bytes.
#include "include/base.p4"

@p4runtime_translation("gradlane.test/port", bit<16>)
type bit<9> port_t;
@p4runtime_translation("gradlane.test/tag", bit<24>)
type bit<20> tag_t;

header subject_t { bit<12> a; bit<20> tag; bit<16> r1; bit<8> r2; }
HEADERS
struct metadata_t { port_t port; tag_t tag; }

INGRESS {
    action send(port_t port) { s.egress_spec = (bit<9>)port; h.subject.r1 = (bit<16>)(bit<9>)port; }
    action set2(bit<8> v) { h.subject.r2 = v; }
    table by_port {
        key = { m.port: exact; m.tag: exact; }
        actions = { send; NoAction; }
        size = 16;
    }
    table by_mask {
        key = { m.tag: ternary; m.port: optional; }
        actions = { set2; NoAction; }
        size = 16;
    }
    table by_range {
        key = { m.tag: range; }
        actions = { set2; NoAction; }
        size = 16;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            m.port = (port_t)h.subject.a[8:0];
            m.tag = (tag_t)h.subject.tag;
            by_port.apply();
            if (!by_mask.apply().hit) { by_range.apply(); }
        }
    }
}

#include "include/rest.p4"
