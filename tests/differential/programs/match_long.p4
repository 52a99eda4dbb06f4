// SPDX-License-Identifier: Apache-2.0
// Keys of more than 64 words: many narrow fields, a few wide ones, also with a prefix, and with masks and a range.
#include "include/base.p4"

header subject_t { bit<8> a; bit<8> b; bit<8> c; bit<48> d; bit<8> r1; bit<8> r2; bit<8> r3; bit<8> r4; }
HEADERS

struct metadata_t {
    bit<8> f0; bit<8> f1; bit<8> f2; bit<8> f3; bit<8> f4; bit<8> f5; bit<8> f6; bit<8> f7; bit<8> f8; bit<8> f9;
    bit<8> f10; bit<8> f11; bit<8> f12; bit<8> f13; bit<8> f14; bit<8> f15; bit<8> f16; bit<8> f17; bit<8> f18; bit<8> f19;
    bit<8> f20; bit<8> f21; bit<8> f22; bit<8> f23; bit<8> f24; bit<8> f25; bit<8> f26; bit<8> f27; bit<8> f28; bit<8> f29;
    bit<8> f30; bit<8> f31; bit<8> f32; bit<8> f33; bit<8> f34; bit<8> f35; bit<8> f36; bit<8> f37; bit<8> f38; bit<8> f39;
    bit<8> f40; bit<8> f41; bit<8> f42; bit<8> f43; bit<8> f44; bit<8> f45; bit<8> f46; bit<8> f47; bit<8> f48; bit<8> f49;
    bit<8> f50; bit<8> f51; bit<8> f52; bit<8> f53; bit<8> f54; bit<8> f55; bit<8> f56; bit<8> f57; bit<8> f58; bit<8> f59;
    bit<8> f60; bit<8> f61; bit<8> f62; bit<8> f63; bit<8> f64; bit<8> f65; bit<8> f66; bit<8> f67; bit<8> f68; bit<8> f69;
    bit<2048> w1; bit<2048> w2; bit<2048> w3;
    bit<72> e;
}

INGRESS {
    action set1(bit<8> v) { h.subject.r1 = v; }
    action set2(bit<8> v) { h.subject.r2 = v; }
    action set3(bit<8> v) { h.subject.r3 = v; }
    action set4(bit<8> v) { h.subject.r4 = v; }
    table narrow {
        key = {
            m.f0: exact; m.f1: exact; m.f2: exact; m.f3: exact; m.f4: exact; m.f5: exact; m.f6: exact;
            m.f7: exact; m.f8: exact; m.f9: exact; m.f10: exact; m.f11: exact; m.f12: exact; m.f13: exact;
            m.f14: exact; m.f15: exact; m.f16: exact; m.f17: exact; m.f18: exact; m.f19: exact; m.f20: exact;
            m.f21: exact; m.f22: exact; m.f23: exact; m.f24: exact; m.f25: exact; m.f26: exact; m.f27: exact;
            m.f28: exact; m.f29: exact; m.f30: exact; m.f31: exact; m.f32: exact; m.f33: exact; m.f34: exact;
            m.f35: exact; m.f36: exact; m.f37: exact; m.f38: exact; m.f39: exact; m.f40: exact; m.f41: exact;
            m.f42: exact; m.f43: exact; m.f44: exact; m.f45: exact; m.f46: exact; m.f47: exact; m.f48: exact;
            m.f49: exact; m.f50: exact; m.f51: exact; m.f52: exact; m.f53: exact; m.f54: exact; m.f55: exact;
            m.f56: exact; m.f57: exact; m.f58: exact; m.f59: exact; m.f60: exact; m.f61: exact; m.f62: exact;
            m.f63: exact; m.f64: exact; m.f65: exact; m.f66: exact; m.f67: exact; m.f68: exact; m.f69: exact;
        }
        actions = { set1; NoAction; }
        size = 16;
    }
    table wide {
        key = { m.w1: exact; m.w2: exact; m.w3: exact; }
        actions = { set2; NoAction; }
        size = 16;
    }
    table prefix {
        key = { m.w1: exact; m.w2: exact; m.w3: exact; h.subject.d: lpm; }
        actions = { set3; NoAction; }
        size = 16;
    }
    table masks {
        key = { m.e: range; m.w1: ternary; m.w2: ternary; m.w3: ternary; h.subject.c: range; }
        actions = { set4; NoAction; }
        size = 16;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            m.f0 = h.subject.a ^ 0; m.f1 = h.subject.a ^ 1; m.f2 = h.subject.a ^ 2; m.f3 = h.subject.a ^ 3; m.f4 = h.subject.a ^ 4;
            m.f5 = h.subject.a ^ 5; m.f6 = h.subject.a ^ 6; m.f7 = h.subject.a ^ 7; m.f8 = h.subject.a ^ 8; m.f9 = h.subject.a ^ 9;
            m.f10 = h.subject.a ^ 10; m.f11 = h.subject.a ^ 11; m.f12 = h.subject.a ^ 12; m.f13 = h.subject.a ^ 13; m.f14 = h.subject.a ^ 14;
            m.f15 = h.subject.a ^ 15; m.f16 = h.subject.a ^ 16; m.f17 = h.subject.a ^ 17; m.f18 = h.subject.a ^ 18; m.f19 = h.subject.a ^ 19;
            m.f20 = h.subject.a ^ 20; m.f21 = h.subject.a ^ 21; m.f22 = h.subject.a ^ 22; m.f23 = h.subject.a ^ 23; m.f24 = h.subject.a ^ 24;
            m.f25 = h.subject.a ^ 25; m.f26 = h.subject.a ^ 26; m.f27 = h.subject.a ^ 27; m.f28 = h.subject.a ^ 28; m.f29 = h.subject.a ^ 29;
            m.f30 = h.subject.a ^ 30; m.f31 = h.subject.a ^ 31; m.f32 = h.subject.a ^ 32; m.f33 = h.subject.a ^ 33; m.f34 = h.subject.a ^ 34;
            m.f35 = h.subject.a ^ 35; m.f36 = h.subject.a ^ 36; m.f37 = h.subject.a ^ 37; m.f38 = h.subject.a ^ 38; m.f39 = h.subject.a ^ 39;
            m.f40 = h.subject.a ^ 40; m.f41 = h.subject.a ^ 41; m.f42 = h.subject.a ^ 42; m.f43 = h.subject.a ^ 43; m.f44 = h.subject.a ^ 44;
            m.f45 = h.subject.a ^ 45; m.f46 = h.subject.a ^ 46; m.f47 = h.subject.a ^ 47; m.f48 = h.subject.a ^ 48; m.f49 = h.subject.a ^ 49;
            m.f50 = h.subject.a ^ 50; m.f51 = h.subject.a ^ 51; m.f52 = h.subject.a ^ 52; m.f53 = h.subject.a ^ 53; m.f54 = h.subject.a ^ 54;
            m.f55 = h.subject.a ^ 55; m.f56 = h.subject.a ^ 56; m.f57 = h.subject.a ^ 57; m.f58 = h.subject.a ^ 58; m.f59 = h.subject.a ^ 59;
            m.f60 = h.subject.a ^ 60; m.f61 = h.subject.a ^ 61; m.f62 = h.subject.a ^ 62; m.f63 = h.subject.a ^ 63; m.f64 = h.subject.a ^ 64;
            m.f65 = h.subject.a ^ 65; m.f66 = h.subject.a ^ 66; m.f67 = h.subject.a ^ 67; m.f68 = h.subject.a ^ 68; m.f69 = h.subject.a ^ 69;
            m.w1 = (bit<2048>)h.subject.b;
            m.w2 = (bit<2048>)h.subject.b << 250;
            m.w3 = ~m.w1;
            m.e = (bit<72>)h.subject.c << 60;
            narrow.apply();
            wide.apply();
            prefix.apply();
            masks.apply();
        }
    }
}

#include "include/rest.p4"
