// SPDX-License-Identifier: Apache-2.0
// Nested expressions of every operator over signed and unsigned fields of 63 to 256 bits.
#include "include/base.p4"

header subject_t {
    bit<63> f0;
    int<65> f1;
    bit<64> f2;
    int<66> f3;
    bit<96> f4;
    int<100> f5;
    bit<128> f6;
    int<128> f7;
    bit<129> f8;
    int<160> f9;
    bit<200> f10;
    int<256> f11;
    bit<8> d;
    bit<1> gap;
}
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.f4 = (bit<96>)((bit<200>)(int<200>)h.subject.f11 << (h.subject.d & 8w7));
            h.subject.f4 = ((bit<11>)(bit<8>)h.subject.f4 ++ (h.subject.f11 != (int<256>)(bit<256>)h.subject.f4 ? (bit<85>)(bit<160>)h.subject.f9 : 85w38685626227668133590597631));
            h.subject.f10 = (-(8w128 <= h.subject.d ? (h.subject.f10 & h.subject.f10) : (h.subject.f10 | (bit<200>)(int<200>)h.subject.f9)));
            h.subject.f10 = (((h.subject.f10 - 200w0) + ((bit<200>)(bit<128>)h.subject.f7 + 200w1)) * (bit<200>)(int<200>)((-100s633825300114114700748351602687 - 100s1) |+| h.subject.f5));
            h.subject.f2 = (((h.subject.f8 >= h.subject.f8 ? (bit<64>)(int<64>)h.subject.f11 : h.subject.f2) * (h.subject.f2 + h.subject.f2)) << h.subject.d);
            h.subject.f10 = h.subject.f10[199:0];
            h.subject.f3 = (((h.subject.f3 |+| (-66s1)) * (h.subject.f3 >> 20)) - (-(h.subject.f9 == 160s0 ? h.subject.f3 : h.subject.f3)));
            h.subject.f10 = h.subject.f10[199:0];
            h.subject.f2 = (h.subject.f2[63:0] |-| (!(h.subject.f3 != h.subject.f3) ? (h.subject.f2 & h.subject.f2) : ((bit<64>)(int<64>)h.subject.f5 * 64w1)));
        }
    }
}

#include "include/rest.p4"
