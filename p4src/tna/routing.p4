// SPDX-License-Identifier: Apache-2.0
// Where a packet goes. What is addressed to the switch is routed: IPv4 and IPv6 by longest prefix, to an ECMP group or a
// multicast group; everything else is bridged by its destination address. Ordinary traffic keeps to one member of a group
// by its flow's hash; slices of gradients are sprayed over all members, as their order does not matter: by the way that
// their sender has chosen, or else in turn.
//
// The tables are looked up, all of them, before it is known whether the packet may go on at all: then a decision follows
// from what they found.

control Routing(inout headers_t hdr, inout metadata_t meta, inout lookup_t lookup) {
    // The switch's own addresses: what has one as its destination is routed.
    @id(0x01000009)
    action route() {
        lookup.routed = true;
    }

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
        lookup.bridge_port = port;
    }

    @id(0x0100000C)
    action no_bridge() { }

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
    action no_route() { }

    // Group 0 is none, of next hops and of multicast.
    @action_restriction("group != 0")
    @id(0x0100000E)
    action set_next_hop(@refers_to(next_hops, group) bit<16> group) {
        lookup.route = Route.GROUP;
        meta.next_hop = group;
    }

    @action_restriction("group != 0")
    @id(0x0100000F)
    action replicate(@refers_to(builtin::multicast_group_table, multicast_group_id) bit<16> group) {
        lookup.route = Route.MULTICAST;
        meta.next_hop = group;
    }

    // An address of the switch itself.
    @id(0x01000010)
    action local() {
        lookup.route = Route.LOCAL;
    }

    // An address to which only other switches send: what a neighbour has routed back.
    @id(0x01000022)
    action probe() {
        lookup.route = Route.PROBE;
    }

    @id(0x02000005)
    table ipv4_routes {
        key = {
            hdr.ipv4.dst: lpm @name("destination");
        }
        actions = { set_next_hop; replicate; local; probe; @defaultonly no_route; }
        const default_action = no_route();
        size = IPV4_PLACES;
    }

    @id(0x0200000B)
    table ipv6_routes {
        key = {
            hdr.ipv6.dst: lpm @name("destination");
        }
        actions = { set_next_hop; replicate; local; @defaultonly no_route; }
        const default_action = no_route();
        size = IPV6_PLACES;
    }

    // `spread` picks the member as it is, modulo their number: slices in turn are sent evenly. Members whose watched port
    // is down are skipped.
    @id(0x11000001)
    ActionProfile(NEXT_HOPS) members;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) spread;
    @id(0x11000002)
    ActionSelector(members, spread, SelectorMode_t.FAIR, GROUP_MEMBERS, NEXT_HOPS) member_of_group;

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
        implementation = member_of_group;
        size = NEXT_HOPS;
    }

    Hash<bit<16>>(HashAlgorithm_t.CRC32) ipv4_flow;
    Hash<bit<16>>(HashAlgorithm_t.CRC32) ipv6_flow;

#ifndef SMALLER_PROFILE
    // A shift by a number that is not constant: a table of constants.
    #define SKIP(bits) @hidden action skip_##bits() { meta.spread = meta.spread >> bits; }
    SKIP(1) SKIP(2) SKIP(3) SKIP(4) SKIP(5) SKIP(6) SKIP(7) SKIP(8) SKIP(9) SKIP(10) SKIP(11) SKIP(12)

    @hidden
    table chosen {
        key = {
            meta.chosen_bits: exact;
        }
        actions = {
            skip_1; skip_2; skip_3; skip_4; skip_5; skip_6; skip_7; skip_8; skip_9; skip_10; skip_11; skip_12;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            1: skip_1();
            2: skip_2();
            3: skip_3();
            4: skip_4();
            5: skip_5();
            6: skip_6();
            7: skip_7();
            8: skip_8();
            9: skip_9();
            10: skip_10();
            11: skip_11();
            12: skip_12();
        }
    }
#endif

    apply {
        stations.apply();
        bridged.apply();
        if (hdr.ipv4.isValid()) {
            ipv4_routes.apply();
        } else if (hdr.ipv6.isValid()) {
            ipv6_routes.apply();
        }

        // A number that is the same at every switch, and of which each has bits of its own to choose by: else what one has
        // sent to the next, which has these bits in common, would all leave that one by the same port. With another seed
        // in each switch it would, too: a CRC is linear, so another seed only gives the ports other names. Half of a
        // CRC-32, as the bits of a CRC-16 depend on one another where flows differ little.
        if (hdr.ipv4.isValid()) {
            meta.spread = ipv4_flow.get({ hdr.ipv4.src, hdr.ipv4.dst, hdr.ipv4.protocol, meta.ports });
        } else if (hdr.ipv6.isValid()) {
            meta.spread = ipv6_flow.get({ hdr.ipv6.src, hdr.ipv6.dst, hdr.ipv6.next_header, hdr.ipv6.flow_label,
                                          meta.ports });
        }
#ifndef SMALLER_PROFILE
        if (hdr.gradlane.source[15:10] != 0) {
            // The way that the sender has chosen, by what its receivers report.
            lookup.turn = (bit<16>)hdr.gradlane.source[15:10];
        } else
#endif
        {
            // Slices in turn, from where their flow begins.
            lookup.turn = lookup.turn + hdr.gradlane.slice;
        }
        if (meta.gradient && meta.spray) {
            meta.spread = meta.spread + lookup.turn;
        }
#ifndef SMALLER_PROFILE
        chosen.apply();
#endif

        if (lookup.special != Reason.FORWARDED) {
            // It stays as it is.
        } else if (!lookup.routed) {
            meta.egress_port = lookup.bridge_port;
        } else if (lookup.route == Route.GROUP && !(hdr.ipv4.isValid() && hdr.ipv4.ttl[7:1] == 0)
                   && !(hdr.ipv6.isValid() && hdr.ipv6.hop_limit[7:1] == 0)) {
            next_hops.apply();
        }
    }
}

// What follows from it.
control Forwarding(inout headers_t hdr, inout metadata_t meta, in lookup_t lookup) {
    @hidden
    action reject(Reason reason) {
        meta.drop = true;
        meta.reason = reason;
    }

    @hidden
    action punt(Reason reason) {
        meta.punt = true;
        meta.reason = reason;
    }

    apply {
        if (meta.drop) {
            // Decided.
        } else if (lookup.special == Reason.PUNTED_LLDP && meta.from_fabric == 0) {
            reject(Reason.DROPPED_LLDP);
        } else if (lookup.special != Reason.FORWARDED) {
            punt(lookup.special);
        } else if (!lookup.routed) {
            if (lookup.bridge_port == 0) {
                reject(Reason.DROPPED_NO_BRIDGE);
            }
        } else if (!hdr.ipv4.isValid() && !hdr.ipv6.isValid()) {
            reject(Reason.DROPPED_NOT_IP);
        } else if (lookup.route == Route.NONE) {
            reject(Reason.DROPPED_NO_ROUTE);
        } else if (lookup.route == Route.LOCAL) {
            punt(Reason.PUNTED_LOCAL);
        } else if (lookup.route == Route.PROBE && meta.from_fabric == 1) {
            punt(Reason.PUNTED_PROBE);
        } else if (lookup.route == Route.PROBE) {
            reject(Reason.DROPPED_NO_ROUTE);
        } else if ((hdr.ipv4.isValid() && hdr.ipv4.ttl[7:1] == 0)
                   || (hdr.ipv6.isValid() && hdr.ipv6.hop_limit[7:1] == 0)) {
            punt(Reason.PUNTED_TTL);
        } else if (lookup.route == Route.MULTICAST) {
            meta.multicast = true;
        }
        if (lookup.routed && !meta.punt) {
            if (hdr.ipv4.isValid()) {
                hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            } else {
                hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
            }
        }
    }
}
