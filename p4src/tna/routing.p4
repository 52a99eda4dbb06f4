// SPDX-License-Identifier: Apache-2.0
// Where a packet goes. What is addressed to the switch is routed: IPv4 and IPv6 by longest prefix, to an ECMP group or a
// multicast group; everything else is bridged by its destination address. Ordinary traffic keeps to one member of a group
// by its flow's hash; slices of gradients are sprayed over all members, in turn, as their order does not matter.
//
// The tables are looked up before it is known whether the packet may go on at all, so they say what they found in
// `outcome`, which then counts only if nobody else has decided.

control Routing(inout headers_t hdr, inout metadata_t meta) {
    Reason outcome = Reason.FORWARDED;
    bool routed = false;

    // The switch's own addresses: what has one as its destination is routed.
    @id(0x01000009)
    action route() {
        routed = true;
    }

    @id(0x0100000A)
    action bridge() { }

    @id(0x02000009)
    table stations {
        key = {
            hdr.ethernet.dst: exact @name("destination");
        }
        actions = { route; @defaultonly bridge; }
        const default_action = bridge();
        size = STATIONS;
    }

    @id(0x0100000B)
    action bridge_to(port_t port) {
        meta.egress_port = port;
    }

    @id(0x0100000C)
    action no_bridge() {
        outcome = Reason.DROPPED_NO_BRIDGE;
    }

    @id(0x0200000A)
    table bridged {
        key = {
            hdr.ethernet.dst: exact @name("destination");
        }
        actions = { bridge_to; @defaultonly no_bridge; }
        const default_action = no_bridge();
        size = BRIDGED;
    }

    @id(0x0100000D)
    action no_route() {
        outcome = Reason.DROPPED_NO_ROUTE;
    }

    @id(0x0100000E)
    action set_next_hop(bit<16> group) {
        meta.next_hop = group;
    }

    @id(0x0100000F)
    action replicate(bit<16> group) {
        meta.multicast = true;
        meta.next_hop = group;
    }

    // An address of the switch itself.
    @id(0x01000010)
    action local() {
        outcome = Reason.PUNTED_LOCAL;
    }

    @id(0x02000005)
    table ipv4_routes {
        key = {
            hdr.ipv4.dst: lpm @name("destination");
        }
        actions = { set_next_hop; replicate; local; @defaultonly no_route; }
        const default_action = no_route();
        size = IPV4_ROUTES;
    }

    @id(0x0200000B)
    table ipv6_routes {
        key = {
            hdr.ipv6.dst: lpm @name("destination");
        }
        actions = { set_next_hop; replicate; local; @defaultonly no_route; }
        const default_action = no_route();
        size = IPV6_ROUTES;
    }

    // `spread` picks the member as it is, modulo their number: slices in turn are sent evenly. Members whose watched port
    // is down are skipped.
    @id(0x11000001)
    ActionProfile(NEXT_HOPS) members;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) spread;
    @id(0x11000002)
    ActionSelector(members, spread, SelectorMode_t.FAIR, GROUP_MEMBERS, NEXT_HOPS) member_of_group;

    @id(0x01000011)
    action forward(port_t port, mac_t next_hop, mac_t own) {
        meta.egress_port = port;
        hdr.ethernet.dst = next_hop;
        hdr.ethernet.src = own;
    }

    @id(0x0200000C)
    table next_hops {
        key = {
            meta.next_hop: exact @name("group");
            meta.spread: selector;
        }
        actions = { forward; }
        implementation = member_of_group;
        size = NEXT_HOPS;
    }

    Hash<bit<16>>(HashAlgorithm_t.CRC16) ipv4_flow;
    Hash<bit<16>>(HashAlgorithm_t.CRC16) ipv6_flow;

    apply {
        if (meta.gradient && meta.spray) {
            meta.spread = hdr.gradlane.slice + hdr.gradlane.message[15:0];
        } else if (hdr.ipv4.isValid()) {
            // With the switch's number, or switches in a row would all choose alike.
            meta.spread = ipv4_flow.get({ meta.switch_id, hdr.ipv4.src, hdr.ipv4.dst, hdr.ipv4.protocol, meta.ports });
        } else if (hdr.ipv6.isValid()) {
            meta.spread = ipv6_flow.get({ meta.switch_id, hdr.ipv6.src, hdr.ipv6.dst, hdr.ipv6.next_header,
                                          hdr.ipv6.flow_label, meta.ports });
        }

        if (hdr.ethernet.ethertype == ETHERTYPE_ARP) {
            outcome = Reason.PUNTED_ARP;
        } else if (hdr.ethernet.ethertype == ETHERTYPE_LLDP) {
            outcome = Reason.PUNTED_LLDP;
        } else if (meta.neighbour_discovery) {
            outcome = Reason.PUNTED_ND;
        } else if (!stations.apply().hit) {
            bridged.apply();
        } else if (hdr.ipv4.isValid()) {
            ipv4_routes.apply();
        } else if (hdr.ipv6.isValid()) {
            ipv6_routes.apply();
        } else {
            outcome = Reason.DROPPED_NOT_IP;
        }

        if (!meta.drop) {
            if (outcome != Reason.FORWARDED) {
                meta.reason = outcome;
                if (outcome == Reason.PUNTED_ARP || outcome == Reason.PUNTED_ND || outcome == Reason.PUNTED_LOCAL
                    || outcome == Reason.PUNTED_LLDP) {
                    meta.punt = true;
                } else {
                    meta.drop = true;
                }
            } else if (routed && hdr.ipv4.isValid() && hdr.ipv4.ttl[7:1] == 0) {
                meta.reason = Reason.PUNTED_TTL;
                meta.punt = true;
            } else if (routed && hdr.ipv6.isValid() && hdr.ipv6.hop_limit[7:1] == 0) {
                meta.reason = Reason.PUNTED_TTL;
                meta.punt = true;
            } else if (routed) {
                if (hdr.ipv4.isValid()) {
                    hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
                } else {
                    hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
                }
                if (meta.next_hop != 0 && !meta.multicast) {
                    next_hops.apply();
                }
            }
        }
        // No such group, or none of its members is alive.
        if (!meta.drop && !meta.punt && !meta.multicast && meta.next_hop != 0 && meta.egress_port == 0) {
            meta.reason = Reason.DROPPED_NO_ROUTE;
            meta.drop = true;
        }
    }
}
