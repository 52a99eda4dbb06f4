// SPDX-License-Identifier: Apache-2.0
// truncate in the deparser, of frames that truncate has cut before, also of those that pass again.
#define OWN_DEPARSER
#define OWN_EGRESS
#include "include/base.p4"

header subject_t { bit<8> limit; bit<8> again; bit<16> length; }
HEADERS
struct metadata_t { @field_list(1) bit<8> round; }

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.length = (bit<16>)s.packet_length;
            if (h.subject.limit > 0x80) { truncate((bit<32>)h.subject.limit - 0x60); }
        }
    }
}

EGRESS {
    apply {
        if (h.subject.isValid() && h.subject.again[0:0] == 1 && m.round == 0) {
            m.round = 1;
            recirculate_preserving_field_list(1);
        }
    }
}

DEPARSER { apply { truncate(80); packet.emit(h); } }

#include "include/rest.p4"
