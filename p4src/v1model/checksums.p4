// SPDX-License-Identifier: Apache-2.0
// The checksum of the IPv4 header; of a header with options it is not looked at, as such a packet is dropped. And UDP's,
// where a switch changes what it covers.

control GradlaneVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(
            hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            IPV4_CHECKSUM_INPUT(hdr.ipv4),
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control GradlaneComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(
            hdr.ipv4.isValid(),
            IPV4_CHECKSUM_INPUT(hdr.ipv4),
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

// A trimmed slice has nothing left but its headers, so they are summed up; over IPv4 it goes without. A trace has a payload
// that no switch can read: its sender's sum is continued by what has been added (RFC 1624), if it has one.
control UdpSum(inout headers_t hdr, inout metadata_t meta, in bool trimmed) {
    apply {
        if (trimmed && hdr.ipv6.isValid()) {
            hash(hdr.udp.checksum, HashAlgorithm.csum16, 16w0, TRIMMED_CHECKSUM_INPUT(hdr, TRIMMED_LENGTHS),
                 32w65536);
        } else if (hdr.hop.isValid() && hdr.udp.checksum != 0) {
            meta.sum_before = ~hdr.udp.checksum;
            hash(hdr.udp.checksum, HashAlgorithm.csum16, 16w0, { meta.sum_before, TRACED_LENGTHS, hdr.hop }, 32w65536);
        } else {
            return;
        }
        // 0 says that there is none.
        if (hdr.udp.checksum == 0) {
            hdr.udp.checksum = 0xFFFF;
        }
    }
}
