// SPDX-License-Identifier: Apache-2.0
// Recognises gradient packets. Everything else is left to ordinary forwarding.

// What the forwarding tables say.
enum bit<3> Route { NONE = 0, GROUP = 1, MULTICAST = 2, LOCAL = 3, PROBE = 4 }

struct lookup_t {
    bool    routed;
    port_t  bridge_port;
    Route   route;
    Reason  special;      // for the controller, whatever its addresses
    bit<16> turn;         // of a slice among those of its flow, or its way
}

// Of the egress port, and of the job at it.
struct port_policy_t {
    // Lowest drop precedence that yellow and red drop at this port (precedence 0 is protected whatever they say),
    // and the lowest queue class whose packets fill the virtual queue.
    drop_precedence_t yellow_from;
    drop_precedence_t red_from;
    queue_class_t     metered_from;
    bool              has_share;
    Color             job_color;
    queue_class_t     excess_class;
}

// What became of a slice that might be dropped.
struct verdict_t {
    bit<16> half_budget;
    bit<1>  within_share;
    bit<1>  spent;
    bit<1>  stale;
    bit<1>  taken;
}

// Of the job and of the layer, as far as counters tell them apart.
struct counted_t {
    bit<4>  job;
    bit<16> layer;
}

#ifdef AGGREGATION
// What becomes of a SUM's lanes.
enum bit<2> Lanes {
    READ  = 0,      // those of the slot take their place
    WRITE = 1,
    ADD   = 2
}

// Of a SUM; workers are bits.
struct sum_t {
    bool     asked;         // it is one
    bit<1>   result;        // from above

    // Of its tree.
    bit<32>  all_workers;
    bit<32>  here;
    bit<32>  beyond;
    port_t   up;
    bit<16>  group;
    mac_t    own;
    ipv4_t   address;
    bit<8>   epoch;
    bit<16>  slot;
    bit<16>  slot_mask;

    // Of itself.
    bit<32>  covers;        // whom it accounts for
    bit<32>  brings;        // who is in it
    bit<32>  stray;         // who is in it, but not accounted for
    bit<32>  has;           // who is in it, or may be missing, and accounted for
    bit<1>   fits;          // has the form of one
    bit<1>   summed;        // it does, and is on its way to a group
    bit<1>   lost;          // nobody has slots for it
    bit<1>   outdated;
    bit<1>   reminds;       // its sender has the result, and there are switches above that may not
    bit<1>   rejected;

    // Of its slot, and what becomes of it.
    bit<1>   other;         // another job's until now
    bit<32>  older;         // it is older than what the slot has
    bit<32>  generation;    // of what the slot had
    bit<32>  same;          // it had its slice
    bit<32>  lacks;         // who is not accounted for
    bit<32>  known;         // who was before
    bit<8>   before;        // how far the slice was
    bit<8>   stage;         // how far it brings it
    Lanes    lanes;
    bit<1>   counted;
    SumEvent event;
    port_t   port;          // 0: the group
}
#endif

struct ingress_metadata_t {
    metadata_t    common;
#ifdef AGGREGATION
    sum_t         sum;
#endif
    lookup_t      lookup;
    port_policy_t policy;
    verdict_t     verdict;
    counted_t     counted;
    bit<16>       number;         // lower half of the message's
    bool       checksum_error;
    bit<16>    ingress_port;      // as the guard's digest has it
    bit<1>     family;            // 1: IPv6
    MirrorId_t mirror_session;    // of a trimmed slice
    Origin     mirror_origin;     // of it, too
    bit<8>     ttl;
    bridged_h  bridged;
}

struct egress_metadata_t {
    metadata_t common;
    bridged_h  bridged;
    trimmed_h  trimmed;
}

parser GradlaneParser(packet_in packet, out headers_t hdr, out ingress_metadata_t meta,
                      out ingress_intrinsic_metadata_t ig_intr_md) {
    Checksum() ipv4_checksum;

    state start {
        packet.extract(ig_intr_md);
        packet.advance(PORT_METADATA_SIZE);
        transition select(ig_intr_md.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition accept;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            ETHERTYPE_ARP: parse_arp;
            ETHERTYPE_LLDP: parse_lldp;
            ETHERTYPE_VLAN: parse_hidden;
            ETHERTYPE_SERVICE_VLAN: parse_hidden;
            ETHERTYPE_OLD_SERVICE_VLAN: parse_hidden;
            default: accept;
        }
    }

    state parse_arp {
        meta.lookup.special = Reason.PUNTED_ARP;
        transition accept;
    }

    state parse_lldp {
        meta.lookup.special = Reason.PUNTED_LLDP;
        transition accept;
    }

    // A host takes a priority tag off, skips extension headers and joins fragments, and may then find a gradient.
    state parse_hidden {
        meta.common.hidden = true;
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        ipv4_checksum.add(hdr.ipv4);
        meta.checksum_error = ipv4_checksum.verify();
        // Only the first fragment would carry the ports, so no fragment has a flow's ports, and one of UDP may be of a
        // gradient.
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.flags[0:0], hdr.ipv4.fragment_offset,
                          hdr.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_UDP): parse_udp;
            (4, 5, 0, 0, PROTOCOL_TCP): parse_tcp;
            (4, 5, _, _, PROTOCOL_UDP): parse_hidden;
            default: accept;
        }
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        meta.family = 1;
        transition select(hdr.ipv6.version, hdr.ipv6.next_header) {
            (6, PROTOCOL_UDP): parse_udp;
            (6, PROTOCOL_TCP): parse_tcp;
            (6, PROTOCOL_ICMPV6): parse_icmpv6;
            (6, HOP_BY_HOP): parse_hidden;
            (6, ROUTING_HEADER): parse_hidden;
            (6, FRAGMENT_HEADER): parse_hidden;
            (6, DESTINATION_OPTIONS): parse_hidden;
            default: accept;
        }
    }

    state parse_icmpv6 {
        // ROUTER_SOLICITATION to REDIRECT: 133, 134 and 135, 136 and 137.
        transition select(packet.lookahead<bit<8>>()) {
            ROUTER_SOLICITATION: parse_neighbour_discovery;
            ROUTER_SOLICITATION + 1 &&& 0xFE: parse_neighbour_discovery;
            REDIRECT &&& 0xFE: parse_neighbour_discovery;
            default: accept;
        }
    }

    state parse_neighbour_discovery {
        meta.common.neighbour_discovery = true;
        meta.lookup.special = Reason.PUNTED_ND;
        transition accept;
    }

    state parse_tcp {
        meta.common.ports = packet.lookahead<bit<32>>();
        transition accept;
    }

    state parse_udp {
        meta.common.ports = packet.lookahead<bit<32>>();
        packet.extract(hdr.udp);
        // Shorter than GRADLANE_UDP_LENGTH, 44 bytes: 0 to 31, 32 to 39, 40 to 43.
        transition select(hdr.udp.dst_port, hdr.udp.length) {
            (GRADLANE_UDP_PORT, 0 &&& 0xFFE0): parse_short;
            (GRADLANE_UDP_PORT, 32 &&& 0xFFF8): parse_short;
            (GRADLANE_UDP_PORT, 40 &&& 0xFFFC): parse_short;
            (GRADLANE_UDP_PORT, _): parse_version;
            default: accept;
        }
    }

    state parse_short {
        meta.common.short_gradlane = true;
        transition accept;
    }

    state parse_version {
        transition select(packet.lookahead<bit<4>>()) {
            GRADLANE_VERSION: parse_gradlane;
            default: parse_unknown_version;
        }
    }

    state parse_unknown_version {
        meta.common.unknown_version = true;
        transition accept;
    }

    state parse_gradlane {
        packet.extract(hdr.gradlane);
#ifdef AGGREGATION
        // The kinds are DATA and REPAIR.
        transition select(hdr.gradlane.kind, hdr.gradlane.flags, hdr.gradlane.length) {
            (KIND_DATA &&& ~KIND_REPAIR, FLAG_SUM | FLAG_PULL &&& FLAG_SUM | FLAG_PULL, SUM_BYTES + SUM_WORD): parse_result;
            (KIND_DATA &&& ~KIND_REPAIR, FLAG_SUM &&& FLAG_SUM, SUM_BYTES + SUM_WORD): parse_sum;
            (KIND_DATA &&& ~KIND_REPAIR, FLAG_SUM &&& FLAG_SUM, _): parse_no_sum;
            default: accept;
        }
    }

    state parse_result {
        meta.sum.result = 1;
        transition parse_sum;
    }

    state parse_sum {
        packet.extract(hdr.sum);
        packet.extract(hdr.lanes);
        meta.sum.asked = true;
        transition accept;
    }

    // It does not have the form of one.
    state parse_no_sum {
        meta.sum.asked = true;
        transition accept;
    }
#else
        transition accept;
    }
#endif
}

// Ingress has found out what the packet is.
parser GradlaneEgressParser(packet_in packet, out headers_t hdr, out egress_metadata_t meta,
                            out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        packet.extract(eg_intr_md);
        transition select(packet.lookahead<Origin>()) {
            Origin.TRIMMED: parse_trimmed;
            default: parse_bridged;
        }
    }

    state parse_bridged {
        packet.extract(meta.bridged);
        transition select(meta.bridged.origin) {
            Origin.GRADIENT: parse_gradient;
            default: parse_ordinary;
        }
    }

    state parse_trimmed {
        packet.extract(meta.trimmed);
        transition parse_gradient;
    }

    state parse_ordinary {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ordinary_ipv4;
            ETHERTYPE_IPV6: parse_ordinary_ipv6;
            default: accept;
        }
    }

    state parse_ordinary_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }

    state parse_ordinary_ipv6 {
        packet.extract(hdr.ipv6);
        transition accept;
    }

    state parse_gradient {
        packet.extract(hdr.ethernet);
        meta.common.gradient = true;
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_gradient_ipv4;
            default: parse_gradient_ipv6;
        }
    }

    state parse_gradient_ipv4 {
        packet.extract(hdr.ipv4);
        transition parse_gradlane;
    }

    state parse_gradient_ipv6 {
        packet.extract(hdr.ipv6);
        transition parse_gradlane;
    }

    state parse_gradlane {
        packet.extract(hdr.udp);
        packet.extract(hdr.gradlane);
        transition accept;
    }
}
