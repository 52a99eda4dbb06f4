// SPDX-License-Identifier: Apache-2.0
// Nested expressions of every operator over signed and unsigned fields of 2 to 64 bits.
#include "include/base.p4"

header subject_t {
    bit<8> f0;
    int<8> f1;
    bit<16> f2;
    int<16> f3;
    bit<5> f4;
    int<7> f5;
    bit<32> f6;
    int<32> f7;
    bit<33> f8;
    int<48> f9;
    bit<64> f10;
    int<64> f11;
    bit<12> f12;
    int<2> f13;
    bit<8> d;
    bit<5> gap;
}
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.f7 = (-((((int<32>)(int<8>)h.subject.f0 + h.subject.f7) >> h.subject.d) << 14));
            h.subject.f4 = (((bit<5>)((bit<33>)h.subject.f6 - h.subject.f8) + ((bit<5>)h.subject.f8 |+| (h.subject.f4 |-| h.subject.f4))) * (((h.subject.f4 ^ h.subject.f4) << h.subject.d) - (((bit<5>)h.subject.f8 |+| h.subject.f4) & (h.subject.f4 |+| h.subject.f4))));
            h.subject.f10 = ((((h.subject.f3 >> h.subject.d) - (h.subject.f3 * (int<16>)h.subject.f7)) > (h.subject.f3 + (16s32767 - h.subject.f3))) && (h.subject.f5 > (int<7>)(bit<7>)(bit<8>)(int<8>)h.subject.f13) ? (((~h.subject.f10) ^ (!(h.subject.f11 >= h.subject.f11) ? h.subject.f10 : h.subject.f10)) << 56) : (h.subject.f10[63:0] | ((h.subject.f10 * h.subject.f10) ^ (64w0 << (h.subject.d & 8w7)))));
            h.subject.f8 = ((bit<33>)(h.subject.f12 - (bit<12>)(bit<64>)h.subject.f11) - (~(h.subject.f8 * h.subject.f8)));
            h.subject.f10 = ((((h.subject.f10 >> (h.subject.d & 8w15)) + (h.subject.f10 - h.subject.f10)) - (((bit<64>)h.subject.f0 - h.subject.f10) * (h.subject.f10 ^ (bit<64>)(int<64>)h.subject.f5))) | ((((bit<64>)(int<64>)h.subject.f3 >> 58) |-| (64w0 >> (h.subject.d & 8w63))) | (h.subject.f10 * h.subject.f10)));
            h.subject.f5 = (((5w16 ^ h.subject.f4) < (h.subject.f4 - h.subject.f4) ? (((int<7>)(int<16>)h.subject.f2 | h.subject.f5) ^ (int<7>)h.subject.f13) : ((h.subject.f13 == (int<2>)h.subject.f11 ? h.subject.f5 : h.subject.f5) >> h.subject.d)) + (int<7>)(int<33>)h.subject.f8);
            h.subject.f2 = (~(((h.subject.f2 * h.subject.f2) ^ (h.subject.f2 ^ (bit<16>)(int<16>)h.subject.f13)) ^ ((bit<16>)(bit<8>)(bit<32>)h.subject.f7 - ((bit<16>)(bit<7>)h.subject.f5 << h.subject.d))));
            h.subject.f6 = ((((h.subject.f13 > h.subject.f13 ? (bit<32>)h.subject.f7 : 32w4294967295) | (-h.subject.f6)) + (-(25w33554431 ++ 7w64))) ^ (((h.subject.f6 * h.subject.f6) - (h.subject.f6 - h.subject.f6)) + ((32w544755946 ^ (bit<32>)(int<32>)h.subject.f11) - (h.subject.f6 & h.subject.f6))));
            h.subject.f0 = (-((((bit<8>)(bit<7>)h.subject.f5 ^ h.subject.f0) * (h.subject.d ^ h.subject.d)) & ((8w0 * h.subject.f0) * ((bit<8>)h.subject.f2 |-| (bit<8>)h.subject.f10))));
            h.subject.f5 = ((((h.subject.f3 + h.subject.f3) <= (~h.subject.f3)) || (h.subject.f6 != h.subject.f6) ? ((-h.subject.f5) & ((int<7>)(bit<7>)h.subject.f12 * (int<7>)(bit<7>)h.subject.d)) : ((h.subject.f5 + h.subject.f5) << (h.subject.d & 8w15))) * ((((int<7>)(int<32>)h.subject.f6 - 7s1) + (h.subject.f5 ^ (int<7>)(bit<7>)h.subject.f12)) + (h.subject.f8 == h.subject.f8 ? ((int<7>)h.subject.f9 |+| h.subject.f5) : h.subject.f5)));
            h.subject.f7 = ((((int<32>)(int<8>)h.subject.d |-| h.subject.f7) |-| (int<32>)(bit<32>)(h.subject.d - h.subject.d)) * (((h.subject.f7 << (h.subject.d & 8w7)) << h.subject.d) << (h.subject.d & 8w7)));
            h.subject.f4 = (~((h.subject.f8 |+| (bit<33>)h.subject.f0) < (h.subject.f8 << (h.subject.d & 8w15)) ? (h.subject.f6 == (bit<32>)(int<32>)h.subject.f5 ? (h.subject.f4 ^ h.subject.f4) : ((bit<5>)(int<5>)h.subject.f5 + (bit<5>)(bit<16>)h.subject.f3)) : (((bit<5>)(int<5>)h.subject.f9 - (bit<5>)h.subject.f10) >> 5)));
        }
    }
}

#include "include/rest.p4"
