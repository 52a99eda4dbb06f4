// SPDX-License-Identifier: Apache-2.0
// The checksum of the IPv4 header is verified in the parser; here it is computed anew as the packet leaves. What leaves
// without an egress (to the controller) is as it came.

control GradlaneComputeChecksum(inout headers_t hdr) {
    Checksum() ipv4_checksum;

    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.checksum = ipv4_checksum.update(IPV4_CHECKSUM_INPUT(hdr.ipv4));
        }
    }
}
