// SPDX-License-Identifier: Apache-2.0
// Where a packet goes. What is addressed to the switch is routed: IPv4 and IPv6 by longest prefix, to an ECMP group or a
// multicast group; everything else is bridged by its destination address. Ordinary traffic keeps to one member of a group
// by its flow's hash; slices of gradients are sprayed over all members, as their order does not matter: by the way that
// their sender has chosen, or else in turn.

control Routing(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action reject(Reason reason) {
        meta.drop = true;
        meta.reason = reason;
    }

    action punt(Reason reason) {
        meta.punt = true;
        meta.reason = reason;
    }

    // The switch's own addresses: what has one as its destination is routed.
    @id(0x01000009)
    action route() { }

    @id(0x0100000A)
    action bridge() { }

    @entry_restriction("destination != mac('00:00:00:00:00:00'); destination != mac('ff:ff:ff:ff:ff:ff')")
    @id(0x02000009)
    table stations {
        key = {
            hdr.ethernet.dst: exact @name("destination");
        }
        actions = { route; @defaultonly bridge; }
        const default_action = bridge();
        size = STATIONS;
    }

    // Port 0 is none, and by 511 v1model drops.
    @action_restriction("port != 0; port != 511")
    @id(0x0100000B)
    action bridge_to(port_t port) {
        meta.egress_port = port;
    }

    @id(0x0100000C)
    action no_bridge() {
        reject(Reason.DROPPED_NO_BRIDGE);
    }

    @entry_restriction("destination != mac('00:00:00:00:00:00'); destination != mac('ff:ff:ff:ff:ff:ff')")
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
        reject(Reason.DROPPED_NO_ROUTE);
    }

    // Group 0 is none, of next hops and of multicast.
    @action_restriction("group != 0")
    @id(0x0100000E)
    action set_next_hop(@refers_to(next_hops, group) bit<16> group) {
        meta.next_hop = group;
    }

    @action_restriction("group != 0")
    @id(0x0100000F)
    action replicate(@refers_to(builtin::multicast_group_table, multicast_group_id) bit<16> group) {
        meta.multicast = true;
        meta.next_hop = group;
    }

    // An address of the switch itself.
    @id(0x01000010)
    action local() {
        punt(Reason.PUNTED_LOCAL);
    }

    // An address to which only other switches send: what a neighbour has routed back.
    @id(0x01000022)
    action probe() {
        if (meta.from_fabric == 1) {
            punt(Reason.PUNTED_PROBE);
        } else {
            reject(Reason.DROPPED_NO_ROUTE);
        }
    }

    @id(0x02000005)
    table ipv4_routes {
        key = {
            hdr.ipv4.dst: lpm @name("destination");
        }
        actions = { set_next_hop; replicate; local; probe; @defaultonly no_route; }
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
    action_selector(HashAlgorithm.identity, NEXT_HOPS, 16) members;

    @action_restriction("port != 0; port != 511")
    @id(0x01000011)
    action forward(port_t port, mac_t next_hop, mac_t own) {
        meta.egress_port = port;
        hdr.ethernet.dst = next_hop;
        hdr.ethernet.src = own;
    }

    @entry_restriction("group != 0")
    @id(0x0200000C)
    table next_hops {
        key = {
            meta.next_hop: exact @name("group");
            meta.spread: selector;
        }
        actions = { forward; }
        implementation = members;
        size = NEXT_HOPS;
    }

    apply {
        // A number that is the same at every switch, and of which each has bits of its own to choose by: else what one has
        // sent to the next, which has these bits in common, would all leave that one by the same port. With another seed
        // in each switch it would, too: a CRC is linear, so another seed only gives the ports other names. Half of a
        // CRC-32, as the bits of a CRC-16 depend on one another where flows differ little.
        if (hdr.ipv4.isValid()) {
            hash(meta.spread, HashAlgorithm.crc32, 16w0,
                 { hdr.ipv4.src, hdr.ipv4.dst, hdr.ipv4.protocol, meta.ports }, 32w65536);
        } else if (hdr.ipv6.isValid()) {
            hash(meta.spread, HashAlgorithm.crc32, 16w0,
                 { hdr.ipv6.src, hdr.ipv6.dst, hdr.ipv6.next_header, hdr.ipv6.flow_label, meta.ports }, 32w65536);
        }
        if (meta.gradient && meta.spray) {
            if (hdr.gradlane.source[15:10] != 0) {
                // The way that the sender has chosen, by what its receivers report.
                meta.spread = meta.spread + (bit<16>)hdr.gradlane.source[15:10];
            } else {
                // Slices in turn, from where their flow begins.
                meta.spread = meta.spread + hdr.gradlane.message[15:0] + hdr.gradlane.slice;
            }
        }
        meta.spread = meta.spread >> meta.chosen_bits;

        if (hdr.ethernet.ethertype == ETHERTYPE_ARP) {
            punt(Reason.PUNTED_ARP);
        } else if (hdr.ethernet.ethertype == ETHERTYPE_LLDP) {
            if (meta.from_fabric == 1) {
                punt(Reason.PUNTED_LLDP);
            } else {
                reject(Reason.DROPPED_LLDP);
            }
        } else if (meta.neighbour_discovery) {
            punt(Reason.PUNTED_ND);
        } else if (!stations.apply().hit) {
            bridged.apply();
        } else if (hdr.ipv4.isValid()) {
            ipv4_routes.apply();
            if (!meta.drop && !meta.punt) {
                if (hdr.ipv4.ttl <= 1) {
                    punt(Reason.PUNTED_TTL);
                } else {
                    hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
                }
            }
        } else if (hdr.ipv6.isValid()) {
            ipv6_routes.apply();
            if (!meta.drop && !meta.punt) {
                if (hdr.ipv6.hop_limit <= 1) {
                    punt(Reason.PUNTED_TTL);
                } else {
                    hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
                }
            }
        } else {
            reject(Reason.DROPPED_NOT_IP);
        }
        if (meta.next_hop != 0 && !meta.multicast && !meta.punt) {
            next_hops.apply();
            // No such group, or none of its members is alive.
            if (meta.egress_port == 0) {
                no_route();
            }
        }
    }
}
