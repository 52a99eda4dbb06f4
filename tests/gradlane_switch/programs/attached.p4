// SPDX-License-Identifier: Apache-2.0
// What tables have besides actions: profiles with and without groups, direct meters, idle timeouts; and packet I/O.
#include <core.p4>
#include <v1model.p4>

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> reason;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    @padding
    bit<7> unused;
}

header request_t {
    bit<8>  op;
    bit<8>  key;
    bit<16> flow;
    bit<8>  colour;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    request_t    request;
}

struct metadata_t {
    bit<2> colour;
}

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) {
            500: from_controller;
            default: from_host;
        }
    }
    state from_controller {
        packet.extract(hdr.packet_out);
        transition accept;
    }
    state from_host {
        packet.extract(hdr.request);
        transition accept;
    }
}

control VerifyChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @max_group_size(8)
    action_selector(HashAlgorithm.crc16, 16, 16) members;
    action_profile(4) shared;
    direct_meter<bit<2>>(MeterType.packets) limits;

    action send(bit<9> port) {
        standard.egress_spec = port;
    }
    action discard() {
        mark_to_drop(standard);
    }
    action read_colour() {
        limits.read(meta.colour);
    }

    table routes {
        key = {
            hdr.request.key: exact;
            hdr.request.flow: selector;
        }
        actions = { send; discard; }
        implementation = members;
        size = 16;
    }

    table named {
        key = { hdr.request.key: exact; }
        actions = { send; discard; }
        implementation = shared;
        size = 16;
    }

    table metered {
        key = { hdr.request.key: exact; }
        actions = { read_colour; NoAction; }
        meters = limits;
        default_action = NoAction();
        size = 16;
    }

    table ageing {
        key = { hdr.request.key: exact; }
        actions = { send; NoAction; }
        default_action = NoAction();
        support_timeout = true;
        size = 16;
    }

    apply {
        if (hdr.packet_out.isValid()) {
            standard.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else if (hdr.request.op == 1) {
            routes.apply();
        } else if (hdr.request.op == 2) {
            named.apply();
        } else if (hdr.request.op == 3) {
            meta.colour = 3;
            metered.apply();
            hdr.request.colour = (bit<8>)meta.colour;
            standard.egress_spec = 1;
        } else if (hdr.request.op == 4) {
            ageing.apply();
        } else {
            standard.egress_spec = 500;
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard.ingress_port;
            hdr.packet_in.reason = hdr.request.op[6:0];
        }
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control ComputeChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.request);
    }
}

V1Switch(ParserImpl(), VerifyChecksumImpl(), IngressImpl(), EgressImpl(), ComputeChecksumImpl(), DeparserImpl()) main;
