// SPDX-License-Identifier: Apache-2.0
// Recognises gradient packets. Everything else is left to plain IPv4 forwarding.

parser GradlaneParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        // Only the first fragment would carry the UDP header, so no fragment counts as a gradient.
        transition select(hdr.ipv4.ihl, hdr.ipv4.flags[0:0], hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (5, 0, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        // 44 = UDP header and Gradlane header: a shorter datagram can't be a gradient packet.
        transition select(hdr.udp.dst_port, hdr.udp.length) {
            (GRADLANE_UDP_PORT, 0 .. 43): accept;
            (GRADLANE_UDP_PORT, _): parse_version;
            default: accept;
        }
    }

    state parse_version {
        transition select(packet.lookahead<bit<4>>()) {
            GRADLANE_VERSION: parse_gradlane;
            default: accept;
        }
    }

    state parse_gradlane {
        packet.extract(hdr.gradlane);
        transition accept;
    }
}
