// SPDX-License-Identifier: Apache-2.0
// Updating checksums of several algorithms over what ingress and egress have changed, under conditions.
#define OWN_EGRESS
#define OWN_UPDATE
#include "include/base.p4"

header subject_t { bit<8> kind; bit<8> a; bit<32> b; bit<16> c; bit<16> sum; bit<16> crc; bit<32> crc32; bit<16> both; }
HEADERS
NO_METADATA

INGRESS {
    apply { FORWARD if (h.subject.isValid()) { h.subject.a = h.subject.a + 1; } }
}

EGRESS {
    apply { if (h.subject.isValid()) { h.subject.c = (bit<16>)s.egress_port; } }
}

UPDATE {
    apply {
        update_checksum(h.subject.isValid(), { h.subject.kind, h.subject.a, h.subject.b, h.subject.c }, h.subject.sum, HashAlgorithm.csum16);
        update_checksum(h.subject.isValid() && h.subject.kind > 100, { h.subject.b, h.subject.c }, h.subject.crc, HashAlgorithm.crc16);
        update_checksum(h.subject.isValid() && h.subject.kind[0:0] == 1, { h.subject.b, h.subject.a, h.subject.kind }, h.subject.crc32, HashAlgorithm.crc32);
        update_checksum(h.subject.isValid(), { h.subject.sum, h.subject.crc }, h.subject.both, HashAlgorithm.xor16);
    }
}

#include "include/rest.p4"
