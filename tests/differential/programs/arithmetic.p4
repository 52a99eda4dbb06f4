// SPDX-License-Identifier: Apache-2.0
// Every unsigned operator at 8, 32 and 64 bits, with shift distances beyond the width.
#include "include/base.p4"

header subject_t {
    bit<8> op;
    bit<8> distance;
    bit<8> a8;
    bit<8> b8;
    bit<32> a32;
    bit<32> b32;
    bit<64> a64;
    bit<64> b64;
}
HEADERS
NO_METADATA

INGRESS {
    action add() { h.subject.a8 = h.subject.a8 + h.subject.b8; h.subject.a32 = h.subject.a32 + h.subject.b32; h.subject.a64 = h.subject.a64 + h.subject.b64; }
    action subtract() { h.subject.a8 = h.subject.a8 - h.subject.b8; h.subject.a32 = h.subject.a32 - h.subject.b32; h.subject.a64 = h.subject.a64 - h.subject.b64; }
    action multiply() { h.subject.a8 = h.subject.a8 * h.subject.b8; h.subject.a32 = h.subject.a32 * h.subject.b32; h.subject.a64 = h.subject.a64 * h.subject.b64; }
    action both() { h.subject.a8 = h.subject.a8 & h.subject.b8; h.subject.a32 = h.subject.a32 & h.subject.b32; h.subject.a64 = h.subject.a64 & h.subject.b64; }
    action either() { h.subject.a8 = h.subject.a8 | h.subject.b8; h.subject.a32 = h.subject.a32 | h.subject.b32; h.subject.a64 = h.subject.a64 | h.subject.b64; }
    action differ() { h.subject.a8 = h.subject.a8 ^ h.subject.b8; h.subject.a32 = h.subject.a32 ^ h.subject.b32; h.subject.a64 = h.subject.a64 ^ h.subject.b64; }
    action invert() { h.subject.a8 = ~h.subject.b8; h.subject.a32 = ~h.subject.b32; h.subject.a64 = ~h.subject.b64; }
    action left() { h.subject.a8 = h.subject.a8 << h.subject.distance; h.subject.a32 = h.subject.a32 << h.subject.distance; h.subject.a64 = h.subject.a64 << h.subject.distance; }
    action right() { h.subject.a8 = h.subject.a8 >> h.subject.distance; h.subject.a32 = h.subject.a32 >> h.subject.distance; h.subject.a64 = h.subject.a64 >> h.subject.distance; }
    action negate() { h.subject.a8 = -h.subject.b8; h.subject.a32 = -h.subject.b32; h.subject.a64 = -h.subject.b64; }
    action nested() { h.subject.a32 = (h.subject.a32 + h.subject.b32) * (h.subject.a32 - 7) ^ (h.subject.b32 >> 3); h.subject.a64 = (h.subject.a64 | 0xff) - (h.subject.b64 & (bit<64>)h.subject.a32); }
    table operators {
        key = { h.subject.op: exact; }
        actions = { add; subtract; multiply; both; either; differ; invert; left; right; negate; nested; NoAction; }
        const default_action = NoAction();
        const entries = { 0: add(); 1: subtract(); 2: multiply(); 3: both(); 4: either(); 5: differ(); 6: invert(); 7: left(); 8: right(); 9: negate(); 10: nested(); }
    }
    apply {
        FORWARD
        if (h.subject.isValid()) { operators.apply(); }
    }
}

#include "include/rest.p4"
