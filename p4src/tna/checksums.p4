// SPDX-License-Identifier: Apache-2.0
// The checksum of the IPv4 header is verified in the parser; here it is computed anew as the packet leaves. What leaves
// without an egress (to the controller) is as it came.

control GradlaneComputeChecksum(inout headers_t hdr) {
    Checksum() ipv4_checksum;

    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.checksum = ipv4_checksum.update({
                hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_length,
                hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
                hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst });
        }
    }
}
