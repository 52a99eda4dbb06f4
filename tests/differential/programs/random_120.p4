// SPDX-License-Identifier: Apache-2.0
// Made by random_programs.py from seed 120.
#define OWN_PARSER
#define OWN_EGRESS
#define OWN_UPDATE
#include "include/base.p4"

header subject_t {
    bit<8> kind;
    bit<16> sum;
    bit<3> f0;
    int<72> f1;
    bit<7> f2;
    int<33> f3;
    bit<5> pad;
}
header extra_t { bit<32> e0; bit<24> e1; int<32> e2; }
header item_t { bit<8> a; bit<12> b; int<4> c; }
struct headers_t { ethernet_t ethernet; subject_t subject; extra_t extra; item_t[3] items; }
struct metadata_t { bit<63> m0; int<96> m1; int<128> m2; int<5> m3; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        h.subject.kind = ((bit<8>)(bit<72>)(h.subject.f1) | (((h.subject.f2 <= h.subject.f2) && h.extra.isValid()) ? (8w1 - 8w127) : (h.subject.kind & (bit<8>)(int<8>)(h.subject.f1))));
        transition select(h.subject.kind[1:0], h.subject.f0, h.subject.f2) {
            (_, 0..7, _): ahead;
            (0..3, 0..7, 69 &&& 84): extra;
            default: accept;
        }
    }
    state extra { packet.extract(h.extra); verify((!(5s15 < (int<5>)(bit<5>)(h.subject.f0))), error.NoMatch); transition accept; }
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
    action run2(bit<2> p0) {
            if (h.items[0].isValid()) {
                h.subject.f2 = (h.subject.f2 ^ (h.items[0].b)[9:3]);
            }
    }
    table table1 {
        key = { m.m0: ternary; }
        actions = { run2; NoAction; }
        const default_action = run2(2w1);
        const entries = {
            8388882203674034254 &&& 9223372036854775807: run2(2w0);
            542901402629495869 &&& 9223372036854775807: run2(2w0);
        }
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            if (((((bit<13>)(int<13>)(m.m2))[10:3] |+| (h.subject.kind | h.subject.kind)) <= ((h.subject.f2 ++ 1w1) + ((bit<4>)(h.subject.f2) ++ (bit<4>)(bit<5>)(m.m3))))) {
                if ((!((s.ingress_port >= s.ingress_port) || ((h.subject.f0 != h.subject.f0) || (h.subject.f0 >= h.subject.f0))))) {
                if (h.extra.isValid()) {
                hash(h.subject.kind, HashAlgorithm.crc32, 8w236, { m.m2 }, 32w256);
                h.subject.f1 = (((h.subject.f2 - h.subject.f2) > (h.subject.f2 |+| h.subject.f2)) ? (int<72>)(bit<72>)((3w7 >> (bit<4>)(s.ingress_port))) : (h.subject.f1 |+| (h.subject.f1 & (int<72>)(bit<72>)(m.m0))));
                }
                if (((int<128>)(int<8>)(h.subject.kind) == (m.m2 - (int<128>)(m.m1)))) { return; }
                m.m2 = ((~(128s170141183460469231731687303715884105727 + m.m2)) |+| (int<128>)(int<63>)((m.m0 | m.m0)));
                } else {
                h.items.push_front(1);
                h.items.pop_front(1);
                }
                h.items[0].setValid();
                h.items[0].c = (h.extra.isValid() ? (~h.items[0].c) : (int<4>)(bit<4>)(h.items[0].a));
            }
            m.m0[43:34] = (((19w398674)[16:2] << (7w63 & h.subject.f2)))[11:2];
            h.subject.kind = ((((bit<6>)(s.ingress_port))[2:0] ++ ((bit<5>)(m.m0) |-| 5w0)) - (bit<8>)(bit<72>)((-72s1)));
            table1.apply();
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            m.m3 = ((int<5>)(int<63>)((m.m0 ^ m.m0)) + (m.m3 ^ (m.m3 ^ (int<5>)(h.subject.f1))));
        }
    }
}

UPDATE {
    apply {
        update_checksum(h.subject.isValid(), { h.subject.f0, h.subject.f1, h.subject.f2, h.subject.f3 }, h.subject.sum, HashAlgorithm.csum16);
    }
}

#include "include/rest.p4"
