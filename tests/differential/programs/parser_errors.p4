// SPDX-License-Identifier: Apache-2.0
// The errors that parsing itself raises, and what stays valid: too short, no match.
#define OWN_PARSER
#include "include/base.p4"

header subject_t { bit<8> kind; }
header first_t { bit<32> a; }
header second_t { bit<64> b; }
header report_t { bit<8> code; bit<8> valid; }
struct headers_t { report_t report; ethernet_t ethernet; subject_t subject; first_t first; second_t second; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        transition select(h.subject.kind) {
            1: first;
            2: second;
            3: first_of_two;
        }
    }
    state first {
        packet.extract(h.first);
        transition accept;
    }
    state first_of_two {
        packet.extract(h.first);
        transition second;
    }
    state second {
        packet.extract(h.second);
        transition accept;
    }
}

INGRESS {
    apply {
        FORWARD
        h.report.setValid();
        h.report.code = 0;
        h.report.valid = 0;
        if (s.parser_error == error.PacketTooShort) { h.report.code = 1; }
        if (s.parser_error == error.NoMatch) { h.report.code = 2; }
        if (h.ethernet.isValid()) { h.report.valid = h.report.valid | 1; }
        if (h.subject.isValid()) { h.report.valid = h.report.valid | 2; }
        if (h.first.isValid()) { h.report.valid = h.report.valid | 4; }
        if (h.second.isValid()) { h.report.valid = h.report.valid | 8; }
    }
}

#include "include/rest.p4"
