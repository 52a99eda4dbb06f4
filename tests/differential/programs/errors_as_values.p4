// SPDX-License-Identifier: Apache-2.0
// Errors kept in metadata, chosen, compared, verified with an error that is not known before; assigned in a subparser.
error { First, Second, Third }
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> kind; bit<8> a; bit<8> r; bit<8> q; }
header next_t { bit<16> v; }
struct headers_t { ethernet_t ethernet; subject_t subject; next_t[2] next; }
struct metadata_t { error kept; error other; }

parser Check(in bit<8> a, out error result) {
    state start {
        transition select(a) {
            0..9: low;
            10..99: high;
            default: accept;
        }
    }
    state low { result = error.First; transition accept; }
    state high { result = error.Second; transition accept; }
}

PARSER {
    Check() check;
    START
    state subject {
        packet.extract(h.subject);
        m.kept = error.NoError;
        check.apply(h.subject.a, m.kept);
        transition select(h.subject.kind) {
            1: verified;
            2: headers;
            3: both;
            4: advanced;
            default: accept;
        }
    }
    state verified {
        verify(h.subject.a[0:0] == 1, m.kept);
        m.other = error.Third;
        transition accept;
    }
    state headers { packet.extract(h.next.next); packet.extract(h.next.next); transition more; }
    state more { packet.extract(h.next.next); transition accept; }
    state both { verify(h.subject.a > 5, error.Third); transition headers; }
    state advanced { packet.advance((bit<32>)h.subject.a); m.other = error.First; transition accept; }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.r = 0;
            if (s.parser_error == m.kept) { h.subject.r = h.subject.r | 1; }
            if (s.parser_error == error.First) { h.subject.r = h.subject.r | 2; }
            if (s.parser_error == error.Second) { h.subject.r = h.subject.r | 4; }
            if (s.parser_error == error.Third) { h.subject.r = h.subject.r | 8; }
            if (s.parser_error == error.StackOutOfBounds) { h.subject.r = h.subject.r | 0x10; }
            if (s.parser_error == error.PacketTooShort) { h.subject.r = h.subject.r | 0x20; }
            if (s.parser_error == error.ParserInvalidArgument) { h.subject.r = h.subject.r | 0x40; }
            if (m.other != error.NoError) { h.subject.r = h.subject.r | 0x80; }
            m.kept = s.parser_error == error.NoError ? m.other : s.parser_error;
            h.subject.q = m.kept == error.Third ? 8w1 : (m.kept == error.First ? 8w2 : 3);
        }
    }
}

#include "include/rest.p4"
