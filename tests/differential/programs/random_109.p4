// SPDX-License-Identifier: Apache-2.0
// Made by random_programs.py from seed 109.
#define OWN_PARSER
#define OWN_EGRESS
#define OWN_UPDATE
#include "include/base.p4"

header subject_t {
    bit<8> kind;
    bit<16> sum;
    bit<72> f0;
    bit<64> f1;
    int<5> f2;
    bit<8> f3;
    bit<8> f4;
    bit<3> pad;
}
header extra_t { bit<130> e0; bit<6> pad; }
header item_t { bit<8> a; bit<12> b; int<4> c; }
struct headers_t { ethernet_t ethernet; subject_t subject; extra_t extra; item_t[3] items; }
struct metadata_t { bit<9> m0; bit<9> m1; int<9> m2; }

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        h.subject.f3[6:5] = ((bit<2>)(m.m1) |+| ((((bit<72>)(m.m0) <= (bit<72>)(h.subject.f1)) && (s.ingress_port == m.m1)) ? (2w3 << (bit<7>)(bit<9>)(m.m2)) : ((h.subject.f3 > (bit<8>)(s.ingress_port)) ? 2w1 : 2w1)));
        transition select(h.subject.kind[1:0]) {
            0..3: both;
            1: items;
            default: accept;
        }
    }
    state extra { packet.extract(h.extra); verify((((8w127 == h.subject.f4) && (h.subject.f2 >= 5s1)) && ((h.subject.f4 == h.subject.kind) && ((bit<8>)(bit<9>)(m.m2) > 8w1))), error.NoMatch); transition accept; }
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
    action run2(bit<7> p0) {
            h.subject.f1 = ((bit<64>)((m.m0)[6:0]) |-| h.subject.f1);
            h.subject.kind = h.subject.f3;
    }
    table table1 {
        key = { h.subject.f1: lpm; }
        actions = { run2; NoAction; }
        const default_action = NoAction();
        const entries = {
            18446744073709486080 &&& 18446744073709486080: run2(7w63);
        }
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.kind[7:7] = ((((bit<1>)(m.m1) |-| (bit<1>)(h.subject.f4)) ^ (bit<1>)(h.subject.f4)) >> ((-4w15) |+| ((bit<6>)(s.ingress_port))[5:2]));
            hash(m.m1, HashAlgorithm.identity, 9w28, { h.subject.f1, h.subject.kind, m.m1 }, 32w256);
            h.items[1].setValid();
            table1.apply();
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid()) {
            hash(h.subject.f3, HashAlgorithm.crc32, 8w15, { h.subject.kind, s.egress_port, m.m0 }, 32w1);
            if (((m.m0 | s.egress_port) < (bit<9>)(h.subject.f0))) { exit; }
        }
    }
}

UPDATE {
    apply {
        update_checksum(h.subject.isValid(), { h.subject.f0, h.subject.f1, h.subject.f2, h.subject.f3, h.subject.f4 }, h.subject.sum, HashAlgorithm.csum16);
    }
}

#include "include/rest.p4"
