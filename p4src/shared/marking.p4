// SPDX-License-Identifier: Apache-2.0
// Writes the tags into the IP header: the DSCP of a gradient is queue class ++ drop precedence, its protected packets are
// ECN-capable. What is not worth its DSCP loses it, or the next switch would believe it. At a congested port what is ECN-capable says so.

control Marking(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.gradient && meta.from_fabric == 0) {
            if (meta.drop_precedence == PROTECTED) {
                meta.ecn = ECN_CAPABLE;
            } else {
                meta.ecn = ECN_NOT_CAPABLE;
            }
        }
        if (meta.color != Color.GREEN && meta.ecn != ECN_NOT_CAPABLE) {
            meta.ecn = ECN_CONGESTED;
        }
        // Field by field: together it would be more than an action of a hardware target can do to one byte.
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.ecn = meta.ecn;
        } else if (hdr.ipv6.isValid()) {
            hdr.ipv6.ecn = meta.ecn;
        }
        if ((meta.gradient || meta.demoted) && hdr.ipv4.isValid()) {
            hdr.ipv4.dscp[2:0] = meta.drop_precedence;
        } else if ((meta.gradient || meta.demoted) && hdr.ipv6.isValid()) {
            hdr.ipv6.dscp[2:0] = meta.drop_precedence;
        }
        if ((meta.gradient || meta.demoted) && hdr.ipv4.isValid()) {
            hdr.ipv4.dscp[5:3] = meta.queue_class;
        } else if ((meta.gradient || meta.demoted) && hdr.ipv6.isValid()) {
            hdr.ipv6.dscp[5:3] = meta.queue_class;
        }
    }
}

// As above, of a copy that meets the congestion of its own port.
control Congested(inout headers_t hdr, in Color color) {
    apply {
        if (color != Color.GREEN) {
            if (hdr.ipv4.isValid() && hdr.ipv4.ecn != ECN_NOT_CAPABLE) {
                hdr.ipv4.ecn = ECN_CONGESTED;
            } else if (hdr.ipv6.isValid() && hdr.ipv6.ecn != ECN_NOT_CAPABLE) {
                hdr.ipv6.ecn = ECN_CONGESTED;
            }
        }
    }
}
