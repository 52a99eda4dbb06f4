// SPDX-License-Identifier: Apache-2.0
// What a packet finds in its queue, noted by egress, and what egress may do to a packet that has waited.
#include <core.p4>
#include <v1model.p4>

header note_t {
    bit<8>  port;
    bit<8>  class;
    bit<8>  op;        // 1 drop, 2 clone, 3 recirculate once, 4 grow, 5 multicast, 6 clone without end
    bit<8>  argument;  // clone session or multicast group
    bit<32> number;
    bit<8>  version;   // of the program whose egress it was
    bit<8>  kind;      // instance_type
    bit<8>  priority;
    bit<8>  rid;
    bit<32> length;    // packet_length
    bit<32> entered;   // ingress_global_timestamp
    bit<32> enqueued;  // enq_timestamp
    bit<32> waited;    // deq_timedelta
    bit<32> left;      // egress_global_timestamp
    bit<32> ahead;     // enq_qdepth
    bit<32> behind;    // deq_qdepth
    bit<32> turn;      // how many packets egress had seen before
}

header filler_t {
    bit<800> bytes;
}

struct headers_t {
    note_t   note;
    filler_t filler;
}

struct metadata_t {
    @field_list(1)
    bit<32> entered;
}

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.note);
        transition accept;
    }
}

control VerifyChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = (bit<9>)hdr.note.port;
        standard.priority = hdr.note.class[2:0];
        meta.entered = (bit<32>)standard.ingress_global_timestamp;
        if (standard.instance_type == 4) {
            hdr.note.op = 0;  // it has been recirculated
        }
        if (hdr.note.op == 5) {
            standard.mcast_grp = (bit<16>)hdr.note.argument;
        }
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(1) seen;

    apply {
        seen.read(hdr.note.turn, 0);
        seen.write(0, hdr.note.turn + 1);
        hdr.note.version = 0xa5;
        hdr.note.kind = (bit<8>)standard.instance_type;
        hdr.note.priority = (bit<8>)standard.priority;
        hdr.note.rid = (bit<8>)standard.egress_rid;
        hdr.note.length = standard.packet_length;
        hdr.note.entered = meta.entered;
        hdr.note.enqueued = standard.enq_timestamp;
        hdr.note.waited = standard.deq_timedelta;
        hdr.note.left = (bit<32>)standard.egress_global_timestamp;
        hdr.note.ahead = (bit<32>)standard.enq_qdepth;
        hdr.note.behind = (bit<32>)standard.deq_qdepth;
        if (hdr.note.op == 1) {
            mark_to_drop(standard);
        } else if (hdr.note.op == 2 && standard.instance_type == 0) {
            clone_preserving_field_list(CloneType.E2E, (bit<32>)hdr.note.argument, 1);
        } else if (hdr.note.op == 3) {
            recirculate_preserving_field_list(1);
        } else if (hdr.note.op == 4) {
            hdr.filler.setValid();
            hdr.filler.bytes = 0;
        } else if (hdr.note.op == 6) {
            clone_preserving_field_list(CloneType.E2E, (bit<32>)hdr.note.argument, 1);
        }
    }
}

control ComputeChecksumImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.filler);
        packet.emit(hdr.note);
    }
}

V1Switch(ParserImpl(), VerifyChecksumImpl(), IngressImpl(), EgressImpl(), ComputeChecksumImpl(), DeparserImpl()) main;
