// SPDX-License-Identifier: Apache-2.0
// Writes the tags into the IP header: the DSCP of a gradient is queue class ++ drop precedence, its protected packets are
// ECN-capable. At a congested port what is ECN-capable says so.

control Marking(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.gradient) {
            meta.dscp = meta.queue_class ++ meta.drop_precedence;
            if (meta.from_fabric == 0) {
                meta.ecn = meta.drop_precedence == PROTECTED ? ECN_CAPABLE : ECN_NOT_CAPABLE;
            }
        }
        if (meta.color != Color.GREEN && meta.ecn != ECN_NOT_CAPABLE) {
            meta.ecn = ECN_CONGESTED;
        }
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.dscp = meta.dscp;
            hdr.ipv4.ecn = meta.ecn;
        } else if (hdr.ipv6.isValid()) {
            hdr.ipv6.dscp = meta.dscp;
            hdr.ipv6.ecn = meta.ecn;
        }
    }
}
