// SPDX-License-Identifier: Apache-2.0
// Nested expressions of every operator over unsigned fields of 1 to 32 bits.
#include "include/base.p4"

header subject_t {
    bit<1> f0;
    bit<3> f1;
    bit<7> f2;
    bit<8> f3;
    bit<9> f4;
    bit<13> f5;
    bit<16> f6;
    bit<19> f7;
    bit<24> f8;
    bit<31> f9;
    bit<32> f10;
    bit<8> d;
    bit<5> gap;
}
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.f7 = (~((((bit<19>)h.subject.d * h.subject.f7) - (~19w436051)) + ((h.subject.f7 - h.subject.f7) * (h.subject.f7 * h.subject.f7))));
            h.subject.f8 = ((h.subject.f9[28:5] |+| ((h.subject.f8 - h.subject.f8) |-| (h.subject.f8 + h.subject.f8))) | (((-h.subject.f8) >> (h.subject.d & 8w7)) & (4w0 ++ 20w524288)));
            h.subject.f7 = ((((19w262144 * h.subject.f7) | h.subject.f9[18:0]) |+| ((4w1 ++ 15w313) - (h.subject.f6 == h.subject.f6 ? h.subject.f7 : h.subject.f7))) * (((-(bit<19>)h.subject.f9) & ((bit<19>)h.subject.f3 >> (h.subject.d & 8w63))) - (-(h.subject.f7 + 19w524287))));
            h.subject.f7 = (((19w1 + h.subject.f7) - ((bit<19>)h.subject.d + h.subject.f7)) | (((h.subject.f7 + h.subject.f7) - (~h.subject.f7)) - (bit<19>)(h.subject.f3 - h.subject.d)));
            h.subject.f8 = (h.subject.f10[28:5] * (((bit<5>)h.subject.f5 ++ h.subject.f7) + (bit<24>)h.subject.f9[15:0]));
            h.subject.f9 = (-(((h.subject.f9 - (bit<31>)h.subject.d) - (31w1073741824 | h.subject.f9)) ^ (!(h.subject.f0 >= h.subject.f0) ? (!((bit<32>)h.subject.f4 < (bit<32>)h.subject.f5) ? 31w1 : (bit<31>)h.subject.f5) : (-h.subject.f9))));
            h.subject.f3 = (((!((bit<8>)h.subject.f6 != h.subject.d) ? ((bit<8>)h.subject.f0 ^ h.subject.d) : (h.subject.f1 <= (bit<3>)h.subject.f6 ? h.subject.d : 8w215)) >> h.subject.d) - (((bit<8>)1w0 - ((bit<8>)h.subject.f0 * h.subject.d)) + ((!((bit<8>)h.subject.f0 <= (bit<8>)h.subject.f1) ? h.subject.d : (bit<8>)h.subject.f10) + (h.subject.f3 * h.subject.d))));
            h.subject.f2 = ((((24w8731248 <= 24w1 ? 7w0 : h.subject.f2) + (h.subject.f2 | h.subject.f2)) - (h.subject.f3[6:0] + (bit<7>)(bit<3>)h.subject.f8)) |-| (((h.subject.f2 - h.subject.f2) << (h.subject.d & 8w15)) + ((h.subject.f2 - h.subject.f2) | (7w1 |-| h.subject.f2))));
            h.subject.f8 = ((-(h.subject.f8 - h.subject.f8)) == ((h.subject.f8 |+| 24w465660) |+| (h.subject.f8 |-| h.subject.f8)) ? (bit<24>)((h.subject.f6 | h.subject.f6) + (h.subject.f6 & 16w0)) : (((h.subject.f8 + 24w8388608) * (-24w11766995)) - ((~h.subject.f8) * (h.subject.f8 + (bit<24>)h.subject.f10))));
            h.subject.f7 = ((((bit<7>)h.subject.f3 + h.subject.f2) + (h.subject.f2 + h.subject.f2)) > ((7w0 << (h.subject.d & 8w15)) |-| (bit<7>)h.subject.f5) ? ((h.subject.f7 + h.subject.f7) != ((bit<19>)h.subject.f4 * h.subject.f7) ? (h.subject.f5 != h.subject.f5 ? (19w1 + h.subject.f7) : (h.subject.f7 >> (h.subject.d & 8w7))) : (bit<19>)(bit<8>)(bit<32>)h.subject.f9) : (-(!(h.subject.f4 <= 9w1) ? (h.subject.f7 - (bit<19>)h.subject.f6) : (h.subject.f7 - h.subject.f7))));
            h.subject.f10 = (bit<32>)(h.subject.f0 * (h.subject.f0 * h.subject.f0));
        }
    }
}

#include "include/rest.p4"
