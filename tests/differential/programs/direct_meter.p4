// SPDX-License-Identifier: Apache-2.0
// A direct meter: each entry has its own buckets, and its action reads the colour.
#include "include/base.p4"

header subject_t { bit<8> a; bit<8> r; }
HEADERS
struct metadata_t { bit<2> colour; }

INGRESS {
    direct_meter<bit<2>>(MeterType.packets) rates;
    action check() { rates.read(m.colour); }
    table senders {
        key = { h.subject.a: exact; }
        actions = { check; NoAction; }
        default_action = NoAction();
        meters = rates;
        size = 16;
    }
    apply {
        FORWARD
        if (h.subject.isValid()) {
            m.colour = 3;
            senders.apply();
            h.subject.r = (bit<8>)m.colour;
        }
    }
}

#include "include/rest.p4"
