// SPDX-License-Identifier: Apache-2.0
// Made by random_programs.py from seed 112.
#define OWN_PARSER
#define OWN_EGRESS
#define OWN_UPDATE
#include "include/base.p4"

header subject_t {
    bit<8> kind;
    bit<16> sum;
    int<48> f0;
    bit<9> f1;
    bit<5> f2;
    bit<1> f3;
    int<48> f4;
    bit<17> f5;
    bit<8> f6;
}
header extra_t { bit<7> e0; bit<1> e1; int<24> e2; }
header item_t { bit<8> a; bit<12> b; int<4> c; }
struct headers_t { ethernet_t ethernet; subject_t subject; extra_t extra; item_t[3] items; }
struct metadata_t { bit<65> m0; int<32> m1; int<72> m2; int<9> m3; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        h.subject.f0 = (~(((h.subject.f2 >= (bit<5>)(h.subject.f6)) ? h.subject.f4 : h.subject.f4) - (~h.subject.f0)));
        transition select(h.subject.kind[1:0], h.subject.f5) {
            (3 &&& 2, 1): both;
            (1..2, 1): items;
            (0 &&& 3, _): extra;
            (_, 86772 &&& 88644): both;
            (3 &&& 3, 27272): both;
            default: accept;
        }
    }
    state extra { packet.extract(h.extra); verify((((int<72>)(h.subject.f4) >> (bit<2>)(bit<72>)(m.m2)) <= (int<72>)(bit<72>)(h.subject.f1)), error.NoMatch); transition accept; }
    state items {
        packet.extract(h.items.next);
        transition select(h.items.last.b[3:0]) { 0..7: items; default: accept; }
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
            h.subject.kind[4:3] = ((((bit<8>)(bit<72>)(m.m2))[7:3])[1:1] ++ ((-h.subject.f3) ^ ((bit<1>)(bit<72>)(m.m2) << (bit<2>)(int<2>)(m.m3))));
            h.subject.f5 = (h.subject.f5 | (bit<17>)(m.m0));
            hash(h.subject.f6, HashAlgorithm.crc32, 8w19, { h.subject.f3, m.m1, h.subject.f2 }, 32w1);
            if ((!(h.subject.kind != 8w162))) { return; }
            if (h.extra.isValid()) {
                h.subject.kind = (bit<8>)(((s.ingress_port ^ h.subject.f1) - (~s.ingress_port)));
                if (((h.subject.f1 | (~h.subject.f1)) < (h.extra.e0 ++ (h.extra.e1 ++ (bit<1>)(bit<72>)(m.m2))))) {
                if (h.items[0].isValid()) {
                if ((h.items[0].b < ((bit<12>)(bit<32>)(m.m1) - h.items[0].b))) { exit; }
                }
                if (((h.subject.kind <= (bit<8>)(bit<48>)(h.subject.f4)) || ((h.subject.f4 < h.subject.f0) || (!(h.subject.f5 == h.subject.f5))))) {
                h.subject.f3 = ((~(bit<1>)(bit<48>)(h.subject.f4)) * (bit<1>)(s.ingress_port));
                }
                } else {
                hash(h.subject.kind, HashAlgorithm.crc32, 8w49, { m.m2, h.subject.f5, s.ingress_port }, 32w1);
                }
            }
            switch ((h.extra.isValid() ? (3w1 << (bit<7>)(s.ingress_port)) : (bit<3>)(s.ingress_port))) {
                0: {
                    m.m3 = (((m.m3 == m.m3) && ((bit<65>)(h.subject.f5) > m.m0)) ? ((int<9>)(int<5>)(h.subject.f2) >> (7w0 | (bit<7>)(h.subject.f1))) : (int<9>)(bit<9>)(((bit<11>)(h.subject.f1))[10:3]));
                }
                5: {
                    h.items.push_front(2);
                }
                default: { }
            }
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            hash(h.subject.f2, HashAlgorithm.identity, 5w2, { m.m0 }, 32w256);
        }
    }
}

UPDATE {
    apply {
        update_checksum(h.subject.isValid(), { h.subject.f0, h.subject.f1, h.subject.f2, h.subject.f3, h.subject.f4, h.subject.f5, h.subject.f6 }, h.subject.sum, HashAlgorithm.csum16);
    }
}

#include "include/rest.p4"
