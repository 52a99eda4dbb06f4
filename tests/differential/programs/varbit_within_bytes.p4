// SPDX-License-Identifier: Apache-2.0
// Varbit fields that begin within a byte, behind and in front of odd fields, in a stack, copied, compared and summed.
#define OWN_PARSER
#define OWN_UPDATE
#include "include/base.p4"

header subject_t { bit<4> n; bit<4> k; bit<8> what; bit<16> sum; bit<8> r; }
header early_t { bit<3> a; varbit<64> v; bit<5> b; bit<16> c; }
header late_t { bit<16> a; bit<7> b; varbit<120> v; bit<70> c; bit<3> d; }
header bit_t { bit<1> more; varbit<16> v; bit<7> rest; }
struct headers_t { ethernet_t ethernet; subject_t subject; early_t early; early_t twin; late_t late; bit_t[3] bits; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.what) {
            0: accept;
            1: late;
            2: bits;
            3: both;
            default: early;
        }
    }
    state early {
        packet.extract(h.early, (bit<32>)h.subject.n << 3);
        transition select(h.early.b, packet.lookahead<bit<4>>()) {
            (1 &&& 1, _): late;
            (_, 7): bits;
            default: accept;
        }
    }
    state both {
        packet.extract(h.early, (bit<32>)h.subject.n << 3);
        packet.extract(h.twin, (bit<32>)h.subject.k << 3);
        transition accept;
    }
    state late {
        packet.extract(h.late, (bit<32>)h.subject.k << 3);
        transition accept;
    }
    state bits {
        packet.extract(h.bits.next, (bit<32>)h.subject.n[1:0] << 3);
        transition select(h.bits.last.more) { 1: bits; default: accept; }
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.r = 0;
            if (s.parser_error == error.HeaderTooShort) { h.subject.r = 1; }
            if (s.parser_error == error.PacketTooShort) { h.subject.r = 2; }
            if (s.parser_error == error.StackOutOfBounds) { h.subject.r = 3; }
            if (h.early.isValid()) { h.early.a = h.early.a + 1; h.early.b = h.early.b - 1; }
            if (h.early.isValid() && h.twin.isValid()) {
                if (h.early.v == h.twin.v) { h.subject.r = h.subject.r | 0x10; }
                if (h.early == h.twin) { h.subject.r = h.subject.r | 0x20; }
                if (h.early.v != h.twin.v) { h.twin.v = h.early.v; }
            }
            if (h.late.isValid()) { h.late.c = h.late.c ^ 70w0x3fffffffffffffffff; h.late.d = h.late.d + 3; }
            if (h.bits[1].isValid()) { h.bits[0] = h.bits[1]; h.bits[0].rest = 0x55; }
        }
    }
}

UPDATE {
    apply {
        update_checksum(h.late.isValid(), { h.subject.r, h.late.b, h.late.v, h.late.d, h.late.a }, h.subject.sum, HashAlgorithm.csum16);
    }
}

#include "include/rest.p4"
