// SPDX-License-Identifier: Apache-2.0
// Made by random_programs.py from seed 115.
#define OWN_PARSER
#define OWN_EGRESS
#define OWN_UPDATE
#include "include/base.p4"

header subject_t {
    bit<8> kind;
    bit<16> sum;
    int<96> f0;
    int<8> f1;
    int<9> f2;
    bit<72> f3;
    int<32> f4;
    bit<1> f5;
    bit<65> f6;
    bit<5> pad;
}
header extra_t { bit<96> e0; }
header item_t { bit<8> a; bit<12> b; int<4> c; }
struct headers_t { ethernet_t ethernet; subject_t subject; extra_t extra; item_t[3] items; }
struct metadata_t { bit<96> m0; bit<63> m1; int<33> m2; int<5> m3; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        h.subject.f1 = (int<8>)(((h.subject.f6 <= h.subject.f6) ? (int<32>)(int<72>)(h.subject.f3) : h.subject.f4));
        transition select(h.subject.kind[1:0]) {
            1: both;
            3: both;
            3: items;
            default: accept;
        }
    }
    state extra { packet.extract(h.extra); verify((((h.subject.kind == h.subject.kind) || (h.subject.f0 <= h.subject.f0)) || ((h.subject.f3 == h.subject.f3) && ((-96s16149686632588463600567437111) <= h.subject.f0))), error.NoMatch); transition accept; }
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
    action run2(bit<1> p0) {
            h.subject.f6 = ((((m.m1 > m.m1) ? h.subject.f6 : 65w18446744073709551615) | (h.subject.f6 * (bit<65>)(h.subject.kind))) & ((~(bit<70>)(int<70>)(h.subject.f0)))[66:2]);
            h.items.pop_front(3);
    }
    table table1 {
        key = { s.ingress_port: exact; h.subject.f3: exact; h.subject.f6: exact; }
        actions = { run2; NoAction; }
        const default_action = run2(1w1);
        const entries = {
            (504, 1, 0): run2(1w1);
            (511, 0, 0): run2(1w0);
            (0, 1, 36893488147419103231): run2(1w0);
        }
    }
    action run4(bit<3> p0) {
            if ((h.subject.f0 <= (((int<96>)(h.subject.f1) |-| (int<96>)(h.subject.f4)) * (int<96>)(int<3>)(p0)))) {
                m.m2 = ((int<33>)(int<65>)(((h.subject.f2 < (int<9>)(bit<9>)(p0)) ? h.subject.f6 : h.subject.f6)) |-| (int<33>)((m.m3 * m.m3)));
            }
    }
    table table3 {
        key = { h.subject.kind: ternary; }
        actions = { run4; NoAction; }
        const default_action = NoAction();
        const entries = {
            0 &&& 255: run4(3w3);
            0 &&& 42: run4(3w7);
        }
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            table1.apply();
            h.subject.f2 = (int<9>)(bit<9>)((((bit<63>)(h.subject.f6) |-| m.m1) |+| m.m1));
            h.subject.f0 = h.subject.f0;
            table3.apply();
            m.m2 = (((int<33>)(h.subject.f2) * (m.m2 - (int<33>)(bit<33>)(h.subject.f5))) - (-(h.items[0].isValid() ? 33s1730255041 : m.m2)));
        }
    }
}

EGRESS {
    action act5(in bit<24> p0, in bit<7> p1, in int<33> p2) {
            m.m0 = 96w0;
            h.subject.f3[63:39] = ((bit<31>)(int<31>)(h.subject.f4))[27:3];
            if ((((h.subject.f2 - h.subject.f2) ^ h.subject.f2) > h.subject.f2)) {
                if ((((int<9>)(p2) ^ (h.subject.f2 | (-9s1))) > (((int<9>)(int<72>)(h.subject.f3) & h.subject.f2) |+| ((m.m3 >= m.m3) ? (int<9>)(bit<9>)(h.subject.kind) : (int<9>)(int<7>)(p1))))) {
                if ((h.subject.kind != ((bit<8>)(int<8>)(h.subject.f1) |+| ((bit<3>)(bit<33>)(p2) ++ (bit<5>)(bit<32>)(h.subject.f4))))) {
                m.m1 = m.m1;
                h.subject.f4 = (int<32>)(((33s1 >> p1) >> (((bit<1>)(h.subject.kind) >= h.subject.f5) ? p1 : p1)));
                h.subject.f6 = (bit<65>)(int<65>)(((int<5>)(bit<5>)(h.subject.f5) ^ (int<5>)(h.subject.f0)));
                } else {
                h.subject.f6[60:44] = (~17w0);
                }
                m.m3 = (m.m3 + (((p2 < 33s1) ? (int<5>)(bit<5>)(h.subject.f6) : (int<5>)(bit<5>)(m.m1)) ^ (int<5>)(h.subject.f1)));
                h.subject.f0 = (~((h.subject.f0 |-| h.subject.f0) - (h.subject.f0 - (int<96>)(h.subject.f4))));
                }
            } else {
                if (((~((int<5>)(p2) |-| m.m3)) > (int<5>)((m.m2 >> 2w1)))) {
                h.subject.f6 = h.subject.f6;
                h.subject.f2 = (int<9>)(int<9>)(((bit<9>)(h.subject.f6) * (s.egress_port & s.egress_port)));
                h.subject.f5 = (~(-h.subject.f5));
                }
                hash(m.m1, HashAlgorithm.crc32, 63w132, { h.subject.kind }, 32w7);
            }
            for (bit<8> i = 0; i < 4; i = i + 1) {
                if (((p1 < (bit<7>)(bit<9>)(h.subject.f2)) && ((72w1 <= 72w4722366482869645213695) && (9s80 < (int<9>)(p2))))) { break; }
                h.subject.f1 = h.subject.f1;
                h.subject.f1 = ((int<8>)((int<9>)(int<7>)(p1)) | (((int<8>)(bit<8>)(h.subject.f3) << (bit<4>)(i)) + (h.subject.f1 & 8s1)));
            }
    }
    apply {
        if (h.subject.isValid()) {
            h.subject.f3 = (((72w1 >> 4w1) * (h.subject.f3 + h.subject.f3)) - ((bit<75>)(m.m1))[71:0]);
            switch ((bit<16>)(bit<9>)((h.subject.f2 >> (bit<2>)(h.subject.f6)))) {
                1: {
                    switch (16w5448) {
                    1: {
                    h.subject.f1 = ((int<8>)(int<65>)(h.subject.f6) | (((int<8>)(h.subject.f2) << 4w0) >> ((bit<7>)(int<7>)(m.m2) & 7w63)));
                    h.subject.kind = (bit<8>)(((h.subject.f5 < h.subject.f5) ? m.m1 : (63w4611686018427387903 << (bit<4>)(int<4>)(h.subject.f1))));
                    }
                    3: {
                    h.subject.f3[66:48] = ((-(-(bit<19>)(int<19>)(m.m3))) - (((bit<19>)(h.subject.kind) - 19w0) ^ (((int<32>)(int<9>)(s.egress_port) > 32s2147483647) ? 19w262143 : 19w262143)));
                    m.m3 = (int<5>)(((h.subject.f0 << (bit<7>)(h.subject.kind)) |+| (h.subject.f0 << (bit<7>)(m.m1))));
                    }
                    6: {
                    h.subject.kind = h.subject.kind;
                    m.m2 = (-m.m2);
                    }
                    default: { }
                    }
                }
                7: {
                    m.m0 = (m.m0 |+| ((m.m0 & m.m0) << ((bit<2>)(h.subject.kind) << 2w1)));
                    if ((((m.m0 < m.m0) && (!(h.subject.f2 <= h.subject.f2))) && (!((bit<65>)(int<65>)(h.subject.f2) > h.subject.f6)))) {
                    h.subject.f3 = ((bit<72>)((bit<96>)(bit<5>)(m.m3)) & h.subject.f3);
                    act5(((24w13459980 - 24w0) << (7w39 |-| (bit<7>)(h.subject.kind))), (((bit<4>)(s.egress_port) ++ (bit<3>)(s.egress_port)) - ((bit<7>)(h.subject.f6) << 7w0)), ((int<33>)(bit<33>)(m.m0) >> (4w1 & (bit<4>)(m.m0))));
                    } else {
                    hash(h.subject.f5, HashAlgorithm.csum16, 1w1, { m.m2, h.subject.f1, m.m1 }, 32w65536);
                    }
                }
                default: { }
            }
        }
    }
}

UPDATE {
    apply {
        update_checksum(h.subject.isValid(), { h.subject.f0, h.subject.f1, h.subject.f2, h.subject.f3, h.subject.f4, h.subject.f5, h.subject.f6 }, h.subject.sum, HashAlgorithm.csum16);
    }
}

#include "include/rest.p4"
