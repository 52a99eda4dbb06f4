// SPDX-License-Identifier: Apache-2.0
// A header of packet-ins that is 18 bits long, which the program itself never has; p4c takes it into P4Info.
#include "include/base.p4"

@controller_header("packet_in")
header packet_in_t { bit<9> ingress_port; bit<9> target_egress_port; }

header subject_t { bit<8> a; }
HEADERS
NO_METADATA

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) { h.subject.a = h.subject.a + 1; }
    }
}

#include "include/rest.p4"
