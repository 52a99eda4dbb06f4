// SPDX-License-Identifier: Apache-2.0
// IPv4 forwarding by longest prefix; a multicast group carries an aggregator's results to the workers of its job.

control Routing(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action no_route() {
        meta.drop = true;
        meta.reason = Reason.DROPPED_NO_ROUTE;
    }

    action forward(bit<9> port, mac_t next_hop, mac_t own) {
        meta.egress_port = port;
        hdr.ethernet.dst = next_hop;
        hdr.ethernet.src = own;
    }

    action replicate(bit<16> group) {
        meta.multicast = true;
        standard_metadata.mcast_grp = group;
    }

    @id(0x02000005)
    table routes {
        key = {
            hdr.ipv4.dst: lpm @name("destination");
        }
        actions = { forward; replicate; @defaultonly no_route; }
        const default_action = no_route();
        size = 16384;
    }

    apply {
        if (hdr.ipv4.ttl <= 1) {
            meta.drop = true;
            meta.reason = Reason.DROPPED_TTL;
        } else {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            routes.apply();
        }
    }
}
