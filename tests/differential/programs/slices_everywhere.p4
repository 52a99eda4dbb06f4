// SPDX-License-Identifier: Apache-2.0
// Slices assigned of metadata, of stack elements and of wide fields, in parser, action and egress; nested.
#define OWN_PARSER
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<2> i; bit<6> n; bit<16> a; bit<16> b; bit<130> w; bit<6> pad; bit<24> t; }
header item_t { bit<16> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; item_t[3] items; }
struct metadata_t { bit<64> x; bit<33> y; bit<20> z; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        m.x[15:0] = h.subject.a;
        m.x[63:48] = ~h.subject.a;
        m.y[32:32] = h.subject.i[1:1];
        packet.extract(h.items.next);
        packet.extract(h.items.next);
        transition accept;
    }
}

INGRESS {
    action rotate(bit<5> v) {
        h.subject.a[7:4] = h.subject.a[3:0];
        h.subject.a[3:0] = v[4:1];
        h.subject.w[129:120] = h.subject.w[9:0];
        h.subject.w[64:63] = v[1:0];
    }
    table t { key = { h.subject.n[3:1]: exact @name("bits"); } actions = { rotate; NoAction; } size = 8; const entries = { 1: rotate(21); 5: rotate(10); } }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            t.apply();
            h.subject.b[14:11] = h.subject.a[3:0];
            m.z[19:12] = (bit<8>)h.subject.n;
            h.subject.b = h.subject.b + (bit<16>)(m.z >> 2);
            if (h.items[1].isValid()) {
                h.items[1].v[11:4] = h.items[0].v[15:8];
                if (h.subject.i < 2) { h.items[h.subject.i].v[2:1] = h.subject.i; }
            }
            h.subject.t = m.x[47:32] ++ m.x[63:56];
            h.subject.t[19:8] = (h.subject.a ++ h.subject.n)[15:4];
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) { h.subject.t[23:23] = m.y[32:32] ^ (bit<1>)h.subject.w[128:128]; }
    }
}

#include "include/rest.p4"
