// SPDX-License-Identifier: Apache-2.0
// CRCs and exclusive or over fields and payload.
#define OWN_UPDATE
#include "include/base.p4"

header subject_t { bit<8> kind; bit<24> a; bit<16> r1; bit<32> r2; bit<16> r3; }
HEADERS
NO_METADATA

INGRESS {
    apply { FORWARD }
}

UPDATE {
    apply {
        update_checksum_with_payload(h.subject.isValid(), { h.subject.kind, h.subject.a }, h.subject.r1, HashAlgorithm.crc16);
        update_checksum_with_payload(h.subject.isValid() && h.subject.kind < 200, { h.subject.kind, h.subject.a }, h.subject.r2, HashAlgorithm.crc32);
        update_checksum_with_payload(h.subject.isValid(), { h.subject.a }, h.subject.r3, HashAlgorithm.xor16);
    }
}

#include "include/rest.p4"
