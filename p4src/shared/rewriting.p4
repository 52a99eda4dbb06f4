// SPDX-License-Identifier: Apache-2.0
// DSCP for what lies behind a port and knows other code points than the fabric: switches without P4.

control Rewriting(inout headers_t hdr, inout metadata_t meta, in port_t egress_port) {
    @id(0x0100001C)
    action rewrite(bit<6> dscp) {
        meta.dscp = dscp;
    }

    @id(0x0100001D)
    action keep() { }

    @entry_restriction("egress_port != 0; egress_port != 511")
    @id(0x0200000F)
    table dscp_rewrites {
        key = {
            egress_port: exact @name("egress_port");
            meta.dscp: exact @name("dscp");
        }
        actions = { rewrite; @defaultonly keep; }
        const default_action = keep();
        size = DSCP_REWRITES;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            meta.dscp = hdr.ipv4.dscp;
        } else if (hdr.ipv6.isValid()) {
            meta.dscp = hdr.ipv6.dscp;
        }
        if (dscp_rewrites.apply().hit) {
            if (hdr.ipv4.isValid()) {
                hdr.ipv4.dscp = meta.dscp;
            } else if (hdr.ipv6.isValid()) {
                hdr.ipv6.dscp = meta.dscp;
            }
        }
    }
}
