// SPDX-License-Identifier: Apache-2.0
// What a packet is, where it came from, and whether it is fit to be forwarded at all.

control Admission(inout headers_t hdr, inout metadata_t meta, in port_t ingress_port, in bool truncated,
                  in bool checksum_error) {
    Validation() validation;

    // Hosts: their gradients are guarded and tagged.
    @id(0x01000003)
    action edge(bit<16> switch_id) {
        meta.switch_id = switch_id;
    }

    // Another switch of the fabric: its tags are trusted. It may have chosen among several ways, and so may those before
    // it: what comes has these bits of its number in common.
    @action_restriction("chosen_bits <= 12")
    @id(0x01000004)
    action fabric(bit<16> switch_id, bits_t chosen_bits) {
        meta.switch_id = switch_id;
        meta.from_fabric = 1;
        meta.chosen_bits = chosen_bits;
    }

    @entry_restriction("ingress_port != 0; ingress_port != 511")
    @id(0x02000007)
    table ports {
        key = {
            ingress_port: exact @name("ingress_port");
        }
        actions = { edge; fabric; }
        const default_action = edge(0);
        size = PORTS;
    }

    action reject(Reason reason) {
        meta.drop = true;
        meta.reason = reason;
    }

    apply {
        ports.apply();
        if (hdr.ipv4.isValid()) {
            meta.source = IPV4_MAPPED ++ hdr.ipv4.src;
            meta.dscp = hdr.ipv4.dscp;
            meta.ecn = hdr.ipv4.ecn;
        } else if (hdr.ipv6.isValid()) {
            // What only the controller sees may come from any address, also from none yet.
            if (!meta.neighbour_discovery) {
                meta.source = hdr.ipv6.src;
            }
            meta.dscp = hdr.ipv6.dscp;
            meta.ecn = hdr.ipv6.ecn;
        }
        if (truncated) {
            reject(Reason.DROPPED_TRUNCATED);
        } else if (hdr.ipv4.isValid() && (hdr.ipv4.version != 4 || hdr.ipv4.ihl != 5)) {
            reject(Reason.DROPPED_BAD_IP);
        } else if (hdr.ipv4.isValid() && checksum_error) {
            reject(Reason.DROPPED_CHECKSUM);
        } else if (hdr.ipv6.isValid() && hdr.ipv6.version != 6) {
            reject(Reason.DROPPED_BAD_IP);
        } else if (meta.hidden) {
            reject(Reason.DROPPED_HIDDEN);
        } else if (meta.unknown_version) {
            meta.reason = Reason.UNKNOWN_VERSION;
        } else if (meta.short_gradlane) {
            meta.reason = Reason.MALFORMED;
        }
        if (hdr.gradlane.isValid()) {
            validation.apply(hdr, meta);
        }
    }
}
