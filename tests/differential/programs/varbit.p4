// SPDX-License-Identifier: Apache-2.0
// A varbit field whose length another field gives: extracted, sent on, removed; too long for its size is an error.
#define OWN_PARSER
#include "include/base.p4"

header subject_t {
    bit<4> words;
    bit<4> what;
    bit<8> code;
}
header options_t { varbit<256> data; }
header mixed_t { bit<8> a; varbit<64> data; bit<8> b; }
struct headers_t { ethernet_t ethernet; subject_t subject; options_t options; mixed_t mixed; options_t copy; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.what) {
            0: accept;
            7: mixed;
            default: options;
        }
    }
    state options {
        packet.extract(h.options, (bit<32>)h.subject.words << 5);
        transition accept;
    }
    state mixed {
        packet.extract(h.mixed, (bit<32>)h.subject.words << 3);
        transition accept;
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.code = 0;
            if (s.parser_error == error.HeaderTooShort) { h.subject.code = 1; }
            if (s.parser_error == error.PacketTooShort) { h.subject.code = 2; }
            if (s.parser_error != error.NoError) { h.subject.code = h.subject.code | 0x80; }
            if (h.subject.what == 1) { h.options.setInvalid(); }
            if (h.subject.what == 2 && h.options.isValid()) { h.copy = h.options; h.copy.setValid(); }
            if (h.mixed.isValid()) { h.mixed.a = h.mixed.a + h.mixed.b; h.mixed.b = 0x5a; }
        }
    }
}

#include "include/rest.p4"
