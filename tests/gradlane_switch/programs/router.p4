// SPDX-License-Identifier: Apache-2.0
// An IPv4 router with a little of everything that the tests of a running switch need: routes to ports and to multicast
// groups, classes by DSCP, a table of known senders with direct counters, a meter per port, a counter of decisions.

#include <core.p4>
#include <v1model.p4>

header ethernet_h {
    bit<48> dst;
    bit<48> src;
    bit<16> ethertype;
}

header ipv4_h {
    bit<4>  version;
    bit<4>  ihl;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header udp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

struct headers_t {
    ethernet_h ethernet;
    ipv4_h     ipv4;
    udp_h      udp;
}

struct metadata_t {
    bool    drop;
    bool    multicast;
    bit<3>  queue_class;
    bit<32> slot_base;
}

parser RouterParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            0x0800: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.protocol) {
            (5, 17): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition accept;
    }
}

control RouterIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) permitted;
    counter(1024, CounterType.packets_and_bytes) decisions;
    meter(64, MeterType.bytes) virtual_queue;

    action permit(bit<32> slot_base, bit<32> slot_mask, bit<16> max_share) {
        meta.slot_base = slot_base & slot_mask & (bit<32>)max_share;
        permitted.count();
    }

    action refuse() {
        meta.drop = true;
        permitted.count();
    }

    table senders {
        key = {
            standard_metadata.ingress_port: exact @name("ingress_port");
            hdr.ipv4.src: exact @name("source");
            hdr.udp.src_port: exact @name("job");
        }
        actions = { permit; @defaultonly refuse; }
        const default_action = refuse();
        counters = permitted;
        size = 1024;
    }

    action set_queue_class(bit<3> queue_class) {
        meta.queue_class = queue_class;
    }

    table queue_classes {
        key = {
            hdr.udp.dst_port: exact @name("job");
            hdr.ipv4.identification: range @name("layer");
        }
        actions = { set_queue_class; }
        const default_action = set_queue_class(0);
        size = 1024;
    }

    table dscp_classes {
        key = {
            hdr.ipv4.dscp: exact @name("dscp");
        }
        actions = { set_queue_class; }
        const default_action = set_queue_class(0);
        size = 64;
    }

    action no_route() {
        meta.drop = true;
    }

    action forward(bit<9> port, bit<48> next_hop, bit<48> own) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.dst = next_hop;
        hdr.ethernet.src = own;
    }

    action replicate(bit<16> group) {
        meta.multicast = true;
        standard_metadata.mcast_grp = group;
    }

    table routes {
        key = {
            hdr.ipv4.dst: lpm @name("destination");
        }
        actions = { forward; replicate; @defaultonly no_route; }
        const default_action = no_route();
        size = 16384;
    }

    apply {
        if (!hdr.ipv4.isValid() || hdr.ipv4.ttl <= 1) {
            meta.drop = true;
        } else {
            if (hdr.udp.isValid() && hdr.udp.dst_port == 47400) {
                senders.apply();
                queue_classes.apply();
            } else {
                dscp_classes.apply();
            }
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            if (!meta.drop) {
                routes.apply();
            }
            bit<2> color = 0;
            virtual_queue.execute_meter((bit<32>)standard_metadata.egress_spec[5:0], color);
            if (color != 0 && hdr.ipv4.ecn != 0) {
                hdr.ipv4.ecn = 3;
            }
        }
        decisions.count((bit<32>)meta.queue_class + (meta.drop ? 32w8 : 32w0));
        standard_metadata.priority = meta.queue_class;
        if (meta.drop) {
            mark_to_drop(standard_metadata);
        }
    }
}

control RouterEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (meta.multicast && standard_metadata.egress_port == standard_metadata.ingress_port) {
            mark_to_drop(standard_metadata);
        }
    }
}

control RouterVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control RouterComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(
            hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_length,
              hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control RouterDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
    }
}

@pkginfo(name = "router", version = "1.0.0")
V1Switch(RouterParser(), RouterVerifyChecksum(), RouterIngress(), RouterEgress(), RouterComputeChecksum(),
         RouterDeparser()) main;
