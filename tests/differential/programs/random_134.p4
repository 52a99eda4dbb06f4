// SPDX-License-Identifier: Apache-2.0
// Made by random_programs.py from seed 134.
#define OWN_PARSER
#define OWN_EGRESS
#define OWN_UPDATE
#include "include/base.p4"

header subject_t {
    bit<8> kind;
    bit<16> sum;
    bit<32> f0;
    bit<31> f1;
    bit<1> f2;
    int<32> f3;
    bit<33> f4;
    int<32> f5;
    bit<5> f6;
    bit<128> f7;
    bit<2> pad;
}
header extra_t { int<64> e0; bit<9> e1; bit<96> e2; bit<7> pad; }
header item_t { bit<8> a; bit<12> b; int<4> c; }
struct headers_t { ethernet_t ethernet; subject_t subject; extra_t extra; item_t[3] items; }
struct metadata_t { bit<16> m0; bit<8> m1; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        m.m0[11:10] = (((bit<2>)(h.subject.f7) |+| ((bit<2>)(h.subject.f0) - (bit<2>)(h.subject.f4))) ^ (((bit<2>)(h.subject.f0) |-| 2w3) | ((m.m0 < m.m0) ? (bit<2>)(bit<32>)(h.subject.f5) : (bit<2>)(h.subject.f2))));
        transition select(h.subject.kind[1:0]) {
            0..3: extra;
            1 &&& 3: ahead;
            default: accept;
        }
    }
    state extra { packet.extract(h.extra); verify((!(h.subject.f3 == (int<32>)(bit<32>)(s.ingress_port))), error.NoMatch); transition accept; }
    state items {
        packet.extract(h.items.next);
        transition select(h.items.last.a[3:0]) { 0..7: items; default: accept; }
    }
    state both { packet.extract(h.extra); transition items; }
    state ahead {
        bit<6> next = packet.lookahead<bit<6>>();
        transition select(next) { 32 &&& 32: extra; 1..9: items; default: accept; }
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (((bit<9>)(h.subject.f0) == ((h.subject.kind ^ m.m1) ++ ((h.subject.f4 <= h.subject.f4) ? 1w0 : 1w1)))) {
                h.subject.f2 = ((bit<1>)(bit<32>)((int<32>)(bit<32>)(h.subject.f1)) & ((h.subject.f7 >= h.subject.f7) ? (h.subject.f2 |+| h.subject.f2) : h.subject.f2));
            } else {
                h.subject.f0 = ((~((bit<36>)(h.subject.f1))[33:2]) & ((h.subject.f0 + h.subject.f0) >> ((bit<2>)(h.subject.f1) >> (bit<2>)(h.subject.f0))));
            }
            if ((((((bit<8>)(h.subject.f7) > m.m1) && (h.subject.f2 <= h.subject.f2)) && (((bit<33>)(h.subject.f2) == h.subject.f4) || (s.ingress_port < s.ingress_port))) || ((h.subject.f4 | (bit<33>)(h.subject.kind)) >= (((int<32>)(int<5>)(h.subject.f6) < (int<32>)(int<8>)(h.subject.kind)) ? h.subject.f4 : h.subject.f4)))) {
                h.subject.f5 = ((h.subject.f3 - h.subject.f5) - ((h.subject.f3 >> (bit<2>)(h.subject.f0)) |-| (h.subject.f5 ^ h.subject.f5)));
            }
            if ((((h.subject.f2 != (bit<1>)(bit<32>)(h.subject.f3)) && ((bit<8>)(m.m0) == h.subject.kind)) && h.extra.isValid())) { return; }
            h.subject.f6[1:1] = (bit<1>)(h.subject.f1);
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            if (((h.subject.f0 < h.subject.f0) || (8w255 > m.m1))) { exit; }
        }
    }
}

UPDATE {
    apply {
        update_checksum(h.subject.isValid(), { h.subject.f0, h.subject.f1, h.subject.f2, h.subject.f3, h.subject.f4, h.subject.f5, h.subject.f6, h.subject.f7 }, h.subject.sum, HashAlgorithm.csum16);
    }
}

#include "include/rest.p4"
