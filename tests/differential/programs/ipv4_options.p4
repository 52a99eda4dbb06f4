// SPDX-License-Identifier: Apache-2.0
// IPv4 with options, as a router parses it: lookahead for the length, varbit, time to live, header checksum.
#define OWN_PARSER
#define OWN_VERIFY
#define OWN_UPDATE
#include "include/base.p4"

header subject_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> length;
    bit<16> id;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
    varbit<320> options;
}
HEADERS
NO_METADATA

PARSER {
    START
    state subject {
        bit<8> first = packet.lookahead<bit<8>>();
        verify(first[7:4] == 4, error.NoMatch);
        verify(first[3:0] >= 5, error.HeaderTooShort);
        packet.extract(h.subject, ((bit<32>)first[3:0] - 5) << 5);
        transition accept;
    }
}

VERIFY {
    apply {
        verify_checksum(h.subject.isValid() && h.subject.ihl == 5,
            { h.subject.version, h.subject.ihl, h.subject.tos, h.subject.length, h.subject.id, h.subject.fragment,
              h.subject.ttl, h.subject.protocol, h.subject.src, h.subject.dst },
            h.subject.checksum, HashAlgorithm.csum16);
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) {
            h.subject.ttl = h.subject.ttl - 1;
            h.subject.tos[0:0] = s.checksum_error;
            if (h.subject.ttl == 0) { mark_to_drop(s); }
        }
    }
}

UPDATE {
    apply {
        update_checksum(h.subject.isValid(),
            { h.subject.version, h.subject.ihl, h.subject.tos, h.subject.length, h.subject.id, h.subject.fragment,
              h.subject.ttl, h.subject.protocol, h.subject.src, h.subject.dst, h.subject.options },
            h.subject.checksum, HashAlgorithm.csum16);
    }
}

#include "include/rest.p4"
