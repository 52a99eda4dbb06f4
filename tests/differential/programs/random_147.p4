// SPDX-License-Identifier: Apache-2.0
// Made by random_programs.py from seed 147.
#define OWN_PARSER
#define OWN_EGRESS
#define OWN_UPDATE
#include "include/base.p4"

header subject_t {
    bit<8> kind;
    bit<16> sum;
    bit<128> f0;
    bit<16> f1;
    bit<48> f2;
    bit<9> f3;
    bit<72> f4;
    int<3> f5;
    int<24> f6;
    int<130> f7;
    bit<2> pad;
}
header extra_t { bit<130> e0; bit<6> pad; }
header item_t { bit<8> a; bit<12> b; int<4> c; }
struct headers_t { ethernet_t ethernet; subject_t subject; extra_t extra; item_t[3] items; }
struct metadata_t { bit<17> m0; bit<16> m1; bit<65> m2; bit<96> m3; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        h.subject.kind = ((((bit<7>)(h.subject.f2) * (bit<7>)(m.m3)) + ((bit<7>)(m.m2) & 7w0)) ++ (~1w1));
        transition select(h.subject.kind[1:0], h.subject.f4) {
            (1 &&& 2, 0): extra;
            (1..2, 1): extra;
            (1..2, 4048826777744729207558): both;
            (0, 4626835804293236919801 &&& 508469933063102237922): both;
            default: accept;
        }
    }
    state extra { packet.extract(h.extra); verify((((bit<8>)(s.ingress_port) ^ (bit<8>)(h.subject.f1)) < (~(bit<8>)(int<8>)(h.subject.f6))), error.NoMatch); transition accept; }
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
            m.m3 = (((m.m3 <= m.m3) ? (41w1203635349704 ++ 55w36028797018963967) : (96w39614081257132168796771975167 ^ m.m3)) | ((m.m3 |-| m.m3) - (m.m3 |-| m.m3)));
            hash(h.subject.kind, HashAlgorithm.identity, 8w63, { h.subject.f4 }, 32w7);
            switch (h.subject.f1) {
                1: {
                    hash(h.subject.kind, HashAlgorithm.crc32, 8w2, { h.subject.f2 }, 32w7);
                }
                6: {
                    h.subject.f3 = (((bit<9>)(m.m0) & (bit<9>)(int<9>)(h.subject.f6)) |+| (-h.subject.f3));
                    hash(h.subject.f1, HashAlgorithm.csum16, 16w7, { h.subject.f6, s.ingress_port, m.m0 }, 32w65536);
                }
                default: { }
            }
            h.subject.f6 = (int<24>)(int<65>)(((bit<65>)(h.subject.kind) |-| (68w147573952589676412927)[66:2]));
        }
    }
}

EGRESS {
    action run2(bit<48> p0, bit<3> p1) {
            h.items.push_front(1);
            h.subject.f3 = s.egress_port;
    }
    table table1 {
        key = { m.m2: exact; m.m1: range; s.egress_port: ternary; }
        actions = { run2; NoAction; }
        const default_action = NoAction();
        const entries = {
            (1, 0..32767, 0 &&& 511): run2(48w281474976710655, 3w3);
        }
    }
    action act3(in bit<32> p0) {
            if ((!(!(m.m1 != m.m1)))) {
                h.items[1].setValid();
                h.subject.f0 = ((bit<131>)(h.items[1].b))[130:3];
            } else {
                h.subject.f0[126:125] = (h.items[0].isValid() ? (((bit<2>)(h.subject.f0) + 2w3) + ((p0 <= p0) ? 2w3 : (bit<2>)(h.subject.f2))) : (bit<2>)(m.m2));
            }
    }
    apply {
        if (h.subject.isValid()) {
            h.subject.f3 = (((int<24>)(bit<24>)(h.subject.f3) == (h.subject.f6 | h.subject.f6)) ? (~s.egress_port) : ((s.egress_port >> (bit<7>)(h.subject.kind)) << (2w1 |-| (bit<2>)(bit<130>)(h.subject.f7))));
            if (((h.subject.f5 >= h.subject.f5) || ((h.subject.f6 > h.subject.f6) || (h.subject.f7 > h.subject.f7)))) { return; }
            table1.apply();
            if ((h.extra.isValid() && (((h.subject.f1 <= m.m1) ? m.m3 : 96w79228162514264337593543950335) < (m.m3 | m.m3)))) {
                h.subject.f7 = (((h.subject.f6 >= (int<24>)(h.subject.f5)) ? (int<130>)(bit<130>)(h.subject.f2) : (int<130>)(bit<130>)(m.m3)) | (((int<130>)(bit<130>)(h.subject.f2) + h.subject.f7) |+| (int<130>)(int<72>)(h.subject.f4)));
                m.m1 = ((m.m0)[15:0] + (((h.subject.f3 != h.subject.f3) ? m.m1 : h.subject.f1) |-| ((bit<11>)(m.m0) ++ (bit<5>)(h.subject.kind))));
                act3((((s.egress_port <= h.subject.f3) ? (bit<10>)(h.subject.f0) : (bit<10>)(h.subject.f4)) ++ ((bit<22>)(m.m0) |+| (bit<22>)(h.subject.f0))));
            } else {
                if ((((((bit<9>)(h.subject.f4) < s.egress_port) ? m.m2 : (bit<65>)(h.subject.f4)) == (m.m2 + m.m2)) && (((96w65334591006340468041334374766 < m.m3) || (m.m2 <= (bit<65>)(int<65>)(h.subject.f7))) && (48w1 != h.subject.f2)))) {
                if ((((int<130>)(int<16>)(h.subject.f1) | (h.subject.f7 |-| h.subject.f7)) <= (h.subject.f7 * h.subject.f7))) {
                h.subject.f4 = (((h.subject.f4 - 72w4722366482869645213695) - (h.subject.f4 |-| h.subject.f4)) |+| ((-(bit<75>)(h.subject.f2)))[73:2]);
                h.items.pop_front(3);
                h.subject.f3[5:3] = ((((bit<2>)(bit<24>)(h.subject.f6) ++ 4w15))[5:3] ^ (((h.subject.f4 >= h.subject.f4) && (h.subject.f6 > h.subject.f6)) ? (bit<3>)(h.subject.f1) : (((bit<17>)(h.subject.kind) > m.m0) ? (bit<3>)(m.m0) : 3w1)));
                }
                switch ((((bit<11>)(m.m1) >> (bit<4>)(h.subject.kind)))[9:2]) {
                7: {
                m.m3 = ((bit<98>)(m.m3))[96:1];
                }
                default: { }
                }
                h.items.push_front(1);
                } else {
                if ((!((m.m3 - 96w52148765981100708142926766586) == (m.m3 | m.m3)))) {
                h.subject.f0 = (((~129w680564733841876926926749214863536422911) * (bit<129>)(h.subject.f0)))[127:0];
                }
                }
            }
        }
    }
}

UPDATE {
    apply {
        update_checksum(h.subject.isValid(), { h.subject.f0, h.subject.f1, h.subject.f2, h.subject.f3, h.subject.f4, h.subject.f5, h.subject.f6, h.subject.f7 }, h.subject.sum, HashAlgorithm.csum16);
    }
}

#include "include/rest.p4"
