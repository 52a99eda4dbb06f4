// SPDX-License-Identifier: Apache-2.0
// A stack of header unions: options of different shapes in any order, parsed in a loop.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> code; bit<8> first; }
header short_t { bit<8> kind; bit<8> v; }
header long_t { bit<8> kind; bit<32> v; }
header_union option_t { short_t short; long_t long; }
struct headers_t { ethernet_t ethernet; subject_t subject; option_t[3] options; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition option;
    }
    state option {
        transition select(packet.lookahead<bit<8>>()) {
            1: short;
            2: long;
            default: accept;
        }
    }
    state short { packet.extract(h.options.next.short); transition option; }
    state long { packet.extract(h.options.next.long); transition option; }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.code = s.parser_error == error.StackOutOfBounds ? 8w1 : 0;
            h.subject.first = 0;
            if (h.options[0].short.isValid()) { h.subject.first = h.options[0].short.v; h.options[0].short.v = 0x99; }
            if (h.options[1].long.isValid()) { h.options[1].long.v = h.options[1].long.v + 1; }
        }
    }
}

#include "include/rest.p4"
