// SPDX-License-Identifier: Apache-2.0
// A router for the benchmarks of tables: the port where a packet comes in says which table it meets. A hit and a miss do
// the same, so that what a full table costs more than an empty one is the lookup.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  diffserv;
    bit<16> length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header ipv6_t {
    bit<4>   version;
    bit<8>   traffic_class;
    bit<20>  flow;
    bit<16>  length;
    bit<8>   next;
    bit<8>   hops;
    bit<128> source;
    bit<128> destination;
}

header ports_t {
    bit<16> source;
    bit<16> destination;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ipv6_t     ipv6;
    ports_t    ports;
}

struct metadata_t { }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x0800: ipv4;
            0x86dd: ipv6;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) {
            6: ports;
            17: ports;
            default: accept;
        }
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        transition select(hdr.ipv6.next) {
            6: ports;
            17: ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        transition accept;
    }
}

control VerifyChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action forward(bit<9> port, bit<48> next_hop) {
        standard.egress_spec = port;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = next_hop;
        hdr.ipv4.ttl = hdr.ipv4.ttl |-| 1;
    }
    table exact_entries {
        key = { hdr.ipv4.destination: exact; }
        actions = { forward; }
        default_action = forward(2, 0x020000000002);
        size = 131072;
    }
    table exact_flows {
        key = {
            hdr.ipv4.source: exact;
            hdr.ipv4.destination: exact;
            hdr.ipv4.protocol: exact;
            hdr.ports.source: exact;
            hdr.ports.destination: exact;
        }
        actions = { forward; }
        default_action = forward(2, 0x020000000002);
        size = 131072;
    }
    table lpm_ipv4 {
        key = { hdr.ipv4.destination: lpm; }
        actions = { forward; }
        default_action = forward(2, 0x020000000002);
        size = 131072;
    }
    table lpm_ipv6 {
        key = { hdr.ipv6.destination: lpm; }
        actions = { forward; }
        default_action = forward(2, 0x020000000002);
        size = 131072;
    }
    table ternary_acl {
        key = {
            hdr.ipv4.source: ternary;
            hdr.ipv4.destination: ternary;
            hdr.ipv4.protocol: ternary;
            hdr.ports.source: ternary;
            hdr.ports.destination: ternary;
        }
        actions = { forward; }
        default_action = forward(2, 0x020000000002);
        size = 16384;
    }
    table range_ports {
        key = { hdr.ports.destination: range; }
        actions = { forward; }
        default_action = forward(2, 0x020000000002);
        size = 16384;
    }
    table mixed {
        key = {
            standard.ingress_port: exact;
            hdr.ipv4.destination: lpm;
            hdr.ipv4.protocol: ternary;
            hdr.ports.destination: range;
        }
        actions = { forward; }
        default_action = forward(2, 0x020000000002);
        size = 16384;
    }
    apply {
        if (standard.ingress_port == 1) {
            exact_entries.apply();
        } else if (standard.ingress_port == 2) {
            exact_flows.apply();
        } else if (standard.ingress_port == 3) {
            lpm_ipv4.apply();
        } else if (standard.ingress_port == 4) {
            lpm_ipv6.apply();
        } else if (standard.ingress_port == 5) {
            ternary_acl.apply();
        } else if (standard.ingress_port == 6) {
            range_ports.apply();
        } else {
            mixed.apply();
        }
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control ComputeChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            {
                hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.length, hdr.ipv4.identification,
                hdr.ipv4.flags, hdr.ipv4.offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source,
                hdr.ipv4.destination
            },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.ports);
    }
}

V1Switch(ParserImpl(), VerifyChecksumImpl(), IngressImpl(), EgressImpl(), ComputeChecksumImpl(), DeparserImpl()) main;
