// SPDX-License-Identifier: Apache-2.0
// The checksum of the IPv4 header; of a header with options it is not looked at, as such a packet is dropped.

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
