// SPDX-License-Identifier: Apache-2.0
// verify with errors of the program and of the core; the error reaches ingress, what was extracted before stays.
#define OWN_PARSER
#include "include/base.p4"

error { WrongVersion, WrongSum }

header subject_t {
    bit<4> version;
    bit<4> length;
    bit<8> a;
    bit<8> b;
    bit<8> sum;
}
header report_t { bit<8> code; }
struct headers_t { ethernet_t ethernet; report_t report; subject_t subject; }
NO_METADATA

PARSER {
    START
    state subject {
        packet.extract(h.subject);
        verify(h.subject.version == 4 || h.subject.version == 6, error.WrongVersion);
        verify(h.subject.length >= 5, error.HeaderTooShort);
        transition sum;
    }
    state sum {
        verify(h.subject.a + h.subject.b == h.subject.sum || h.subject.sum == 0, error.WrongSum);
        transition accept;
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.report.setValid();
            h.report.code = 0;
            if (s.parser_error == error.WrongVersion) { h.report.code = 1; }
            else if (s.parser_error == error.HeaderTooShort) { h.report.code = 2; }
            else if (s.parser_error == error.WrongSum) { h.report.code = 3; }
            else if (s.parser_error != error.NoError) { h.report.code = 9; }
        }
    }
}

#include "include/rest.p4"
