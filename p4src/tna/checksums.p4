// SPDX-License-Identifier: Apache-2.0
// The checksum of the IPv4 header is verified in the parser; here it is computed anew as the packet leaves, and UDP's where
// a switch changes what it covers. What leaves without an egress (to the controller) is as it came.

// A trimmed slice has nothing left but its headers, so they are summed up; over IPv4 it goes without. A trace has a payload
// that no switch can read: its sender's sum is continued by what has been added (RFC 1624), if it has one. The deparser
// does the sums; a field goes into one of them only once.
control UdpSum(inout headers_t hdr, inout metadata_t meta, in bool trimmed) {
    apply {
        if (trimmed) {
            if (hdr.ipv6.isValid()) {
                meta.sum_trimmed = true;
                meta.sum_lengths = TRIMMED_LENGTHS;
            }
        } else if (hdr.hop.isValid() && hdr.udp.checksum != 0) {
            meta.sum_traced = true;
            meta.sum_before = ~hdr.udp.checksum;
            meta.sum_lengths = TRACED_LENGTHS;
        }
    }
}

control GradlaneComputeChecksum(inout headers_t hdr, in metadata_t meta) {
    Checksum() ipv4_checksum;
    Checksum() trimmed_checksum;
    Checksum() traced_checksum;

    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.checksum = ipv4_checksum.update(IPV4_CHECKSUM_INPUT(hdr.ipv4));
        }
        // 0 would say that there is none.
        if (meta.sum_trimmed) {
            hdr.udp.checksum = trimmed_checksum.update(TRIMMED_CHECKSUM_INPUT(hdr, meta.sum_lengths), true);
        }
        if (meta.sum_traced) {
            hdr.udp.checksum = traced_checksum.update({ meta.sum_before, meta.sum_lengths, hdr.hop }, true);
        }
    }
}
