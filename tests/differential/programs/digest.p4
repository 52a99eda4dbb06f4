// SPDX-License-Identifier: Apache-2.0
// Digests of a struct of fields of several widths, sent to the control plane from ingress.
#include "include/base.p4"

header subject_t { bit<8> kind; bit<16> a; bit<3> b; bit<5> c; bit<64> d; }
HEADERS
NO_METADATA

struct report_t { bit<48> source; bit<16> a; bit<3> b; bit<9> port; bit<64> d; }

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid() && h.subject.kind[7:7] == 0) {
            digest<report_t>(1, { h.ethernet.src, h.subject.a, h.subject.b, s.ingress_port, h.subject.d });
            h.subject.a = 0;
        }
    }
}

#include "include/rest.p4"
