// SPDX-License-Identifier: Apache-2.0
// What an ordinary data centre switch does, as far as gradients are concerned: it routes IPv4, serves eight queues in strict
// priority by DSCP, and drops early by DSCP (WRED). It knows nothing of gradients: no header beyond IPv4, no budget, no
// guard, no tags of its own. ECN is the queue's (gradlane-switch: the port's setting `ecn`).
#include <core.p4>
#include <v1model.p4>

enum bit<2> Color { GREEN = 0, YELLOW = 1, RED = 2 }

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<16> length;
    bit<16> identification;
    bit<16> fragment;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

struct metadata_t { }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control VerifyImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    // The length of a port's queue, as a rate and two bursts: yellow from the lower threshold on, red from the upper one.
    meter(512, MeterType.bytes) queues;
    counter(64, CounterType.packets_and_bytes) early_drops;   // by DSCP

    bool early = false;
    bit<8> chance_yellow = 0;   // of 255
    bit<8> chance_red = 0;

    action drop() { mark_to_drop(standard); }

    action forward(bit<9> port, bit<48> next_hop, bit<48> own) {
        standard.egress_spec = port;
        hdr.ethernet.destination = next_hop;
        hdr.ethernet.source = own;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    action replicate(bit<16> group) {
        standard.mcast_grp = group;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    table routes {
        key = { hdr.ipv4.destination: lpm; }
        actions = { forward; replicate; drop; }
        const default_action = drop();
        size = 1024;
    }

    // `with_wred`: early drops are switched on for that queue.
    action set_queue(bit<3> queue, bit<1> with_wred) {
        standard.priority = queue;
        early = with_wred == 1;
    }

    table dscp_to_queue {
        key = { hdr.ipv4.dscp: exact; }
        actions = { set_queue; }
        const default_action = set_queue(0, 0);
        size = 64;
    }

    action set_chances(bit<8> yellow, bit<8> red) {
        chance_yellow = yellow;
        chance_red = red;
    }

    table wred {
        key = { hdr.ipv4.dscp: exact; }
        actions = { set_chances; }
        const default_action = set_chances(0, 0);
        size = 64;
    }

    apply {
        if (!hdr.ipv4.isValid() || hdr.ipv4.ttl <= 1) {
            drop();
            return;
        }
        routes.apply();
        dscp_to_queue.apply();
        if (early && standard.mcast_grp == 0) {
            wred.apply();
            Color color = Color.GREEN;
            queues.execute_meter((bit<32>)standard.egress_spec, color);
            bit<8> chance = color == Color.RED ? chance_red : (color == Color.YELLOW ? chance_yellow : 0);
            bit<8> dice;
            random<bit<8>>(dice, 1, 255);
            if (dice <= chance) {
                early_drops.count((bit<32>)hdr.ipv4.dscp);
                drop();
            }
        }
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.mcast_grp != 0 && standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
    }
}

control ComputeImpl(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(
            hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.length, hdr.ipv4.identification,
              hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
