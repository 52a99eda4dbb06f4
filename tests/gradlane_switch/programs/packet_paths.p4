// SPDX-License-Identifier: Apache-2.0
// What a packet does when a pipeline ends is asked for by its first byte; egress notes what it sees in the header.
#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8>  op;
    bit<8>  argument;
    bit<8>  kind;      // instance_type
    bit<8>  kept;
    bit<8>  lost;
    bit<8>  rid;
    bit<16> length;    // packet_length
    bit<16> port;      // ingress_port
}

header tail_t {
    bit<32> filler;
}

struct headers_t {
    tail_t    front;
    request_t request;
}

struct metadata_t {
    @field_list(1)
    bit<8> kept;
    bit<8> lost;
    bool   again;
}

struct learned_t {
    bit<8>  op;
    bit<9>  port;
    bit<16> length;
}

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        transition accept;
    }
}

control VerifyChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        bool fresh = standard.instance_type == 0;
        standard.egress_spec = 1;
        // At the end of ingress instance_type becomes 0.
        meta.again = standard.instance_type == 4;
        if (fresh) {
            meta.kept = 0x55;
        }
        meta.lost = 0x66;
        hdr.request.rid = 0xee;
        if (hdr.request.op == 1) {
            clone_preserving_field_list(CloneType.I2E, (bit<32>)hdr.request.argument, 1);
        } else if (hdr.request.op == 2 && fresh) {
            resubmit_preserving_field_list(1);
        } else if (hdr.request.op == 5) {
            truncate((bit<32>)hdr.request.argument);
        } else if (hdr.request.op == 6) {
            standard.mcast_grp = (bit<16>)hdr.request.argument;
        } else if (hdr.request.op == 7) {
            digest<learned_t>(1, { hdr.request.op, standard.ingress_port, 0x1234 });
        } else if (hdr.request.op == 8) {
            clone(CloneType.I2E, (bit<32>)hdr.request.argument);
            mark_to_drop(standard);
        } else if (hdr.request.op == 9) {
            resubmit_preserving_field_list(1);
        } else if (hdr.request.op == 10 && fresh) {
            clone(CloneType.I2E, (bit<32>)hdr.request.argument);
            digest<learned_t>(1, { hdr.request.op, standard.ingress_port, 0x1234 });
            resubmit_preserving_field_list(1);
            standard.mcast_grp = 7;
        } else if (hdr.request.op == 11) {
            standard.mcast_grp = 7;
            standard.egress_spec = 511;
        }
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.request.kind = (bit<8>)standard.instance_type;
        hdr.request.kept = meta.kept;
        hdr.request.lost = meta.lost;
        hdr.request.length = (bit<16>)standard.packet_length;
        hdr.request.port = (bit<16>)standard.ingress_port;
        if (standard.egress_rid != 0) {
            hdr.request.rid = (bit<8>)standard.egress_rid;
        }
        if (hdr.request.op == 3 && !meta.again) {
            hdr.front.setValid();
            hdr.front.filler = 0x03000000;
            recirculate_preserving_field_list(1);
        } else if (hdr.request.op == 4 && standard.instance_type != 2) {
            clone_preserving_field_list(CloneType.E2E, (bit<32>)hdr.request.argument, 1);
        } else if (hdr.request.op == 12 && standard.instance_type != 2) {
            clone(CloneType.E2E, (bit<32>)hdr.request.argument);
            mark_to_drop(standard);
        } else if (hdr.request.op == 13) {
            recirculate_preserving_field_list(1);
            mark_to_drop(standard);
        } else if (hdr.request.op == 14) {
            recirculate_preserving_field_list(1);
        } else if (hdr.request.op == 15) {
            hdr.front.setValid();
        }
    }
}

control ComputeChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.front);
        packet.emit(hdr.request);
    }
}

V1Switch(ParserImpl(), VerifyChecksumImpl(), IngressImpl(), EgressImpl(), ComputeChecksumImpl(), DeparserImpl()) main;
