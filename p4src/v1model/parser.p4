// SPDX-License-Identifier: Apache-2.0
// Recognises gradient packets. Everything else is left to ordinary forwarding.

parser GradlaneParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
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
            ETHERTYPE_VLAN: parse_hidden;
            ETHERTYPE_SERVICE_VLAN: parse_hidden;
            ETHERTYPE_OLD_SERVICE_VLAN: parse_hidden;
            default: accept;
        }
    }

    // A host takes a priority tag off, skips extension headers and joins fragments, and may then find a gradient.
    state parse_hidden {
        meta.hidden = true;
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
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
        transition select(packet.lookahead<bit<8>>()) {
            ROUTER_SOLICITATION .. REDIRECT: parse_neighbour_discovery;
            default: accept;
        }
    }

    state parse_neighbour_discovery {
        meta.neighbour_discovery = true;
        transition accept;
    }

    state parse_tcp {
        meta.ports = packet.lookahead<bit<32>>();
        transition accept;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        meta.ports = hdr.udp.src_port ++ hdr.udp.dst_port;
        transition select(hdr.udp.dst_port, hdr.udp.length) {
            (GRADLANE_UDP_PORT, 0 .. GRADLANE_UDP_LENGTH - 1): parse_short;
            (GRADLANE_UDP_PORT, _): parse_version;
            default: accept;
        }
    }

    state parse_short {
        meta.short_gradlane = true;
        transition accept;
    }

    state parse_version {
        transition select(packet.lookahead<bit<4>>()) {
            GRADLANE_VERSION: parse_gradlane;
            default: parse_unknown_version;
        }
    }

    state parse_unknown_version {
        meta.unknown_version = true;
        transition accept;
    }

    state parse_gradlane {
        packet.extract(hdr.gradlane);
#ifdef AGGREGATION
        // The kinds are DATA and REPAIR.
        transition select(hdr.gradlane.kind, hdr.gradlane.flags, hdr.udp.length) {
            (KIND_DATA &&& ~KIND_REPAIR, FLAG_SUM &&& FLAG_SUM, SUM_UDP_LENGTH &&& SUM_WORD - 1): parse_sum;
            default: accept;
        }
    }

    // So many words: a contribution has the last ones, so that there is one way through them.
    state parse_sum {
        packet.extract(hdr.sum);
        transition select(hdr.udp.length) {
            SUM_UDP_LENGTH + 11 * SUM_WORD: parse_word_0;
            SUM_UDP_LENGTH + 10 * SUM_WORD: parse_word_1;
            SUM_UDP_LENGTH + 9 * SUM_WORD: parse_word_2;
            SUM_UDP_LENGTH + 8 * SUM_WORD: parse_word_3;
            SUM_UDP_LENGTH + 7 * SUM_WORD: parse_word_4;
            SUM_UDP_LENGTH + 6 * SUM_WORD: parse_word_5;
            SUM_UDP_LENGTH + 5 * SUM_WORD: parse_word_6;
            SUM_UDP_LENGTH + 4 * SUM_WORD: parse_word_7;
            SUM_UDP_LENGTH + 3 * SUM_WORD: parse_word_8;
            SUM_UDP_LENGTH + 2 * SUM_WORD: parse_word_9;
            SUM_UDP_LENGTH + 1 * SUM_WORD: parse_word_10;
            default: accept;
        }
    }

    state parse_word_0 {
        packet.extract(hdr.words[0]);
        transition parse_word_1;
    }

    state parse_word_1 {
        packet.extract(hdr.words[1]);
        transition parse_word_2;
    }

    state parse_word_2 {
        packet.extract(hdr.words[2]);
        transition parse_word_3;
    }

    state parse_word_3 {
        packet.extract(hdr.words[3]);
        transition parse_word_4;
    }

    state parse_word_4 {
        packet.extract(hdr.words[4]);
        transition parse_word_5;
    }

    state parse_word_5 {
        packet.extract(hdr.words[5]);
        transition parse_word_6;
    }

    state parse_word_6 {
        packet.extract(hdr.words[6]);
        transition parse_word_7;
    }

    state parse_word_7 {
        packet.extract(hdr.words[7]);
        transition parse_word_8;
    }

    state parse_word_8 {
        packet.extract(hdr.words[8]);
        transition parse_word_9;
    }

    state parse_word_9 {
        packet.extract(hdr.words[9]);
        transition parse_word_10;
    }

    state parse_word_10 {
        packet.extract(hdr.words[10]);
        transition accept;
    }
#else
        transition accept;
    }
#endif
}
