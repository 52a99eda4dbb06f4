// SPDX-License-Identifier: Apache-2.0
// Checksums that include the payload, of even and odd length, verified and updated.
#define OWN_VERIFY
#define OWN_UPDATE
#include "include/base.p4"

header subject_t { bit<8> kind; bit<8> r; bit<32> a; bit<16> before; bit<16> after; }
HEADERS
NO_METADATA

VERIFY {
    apply {
        verify_checksum_with_payload(h.subject.isValid() && h.subject.kind < 128, { h.subject.a }, h.subject.before, HashAlgorithm.csum16);
    }
}

INGRESS {
    apply {
        FORWARD
        if (h.subject.isValid()) { h.subject.r = (bit<8>)s.checksum_error; h.subject.a = h.subject.a + 1; }
    }
}

UPDATE {
    apply {
        update_checksum_with_payload(h.subject.isValid(), { h.subject.kind, h.subject.r, h.subject.a }, h.subject.after, HashAlgorithm.csum16);
    }
}

#include "include/rest.p4"
