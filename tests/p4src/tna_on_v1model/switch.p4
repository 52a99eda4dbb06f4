// SPDX-License-Identifier: Apache-2.0
// The part of a Tofino that v1model does not have, around the controls of p4src/tna: the traffic manager, the deparsers'
// digest and mirror, and the metadata that goes with a packet through the queues.

struct switch_metadata_t {
    ingress_metadata_t                         ig;
    ingress_intrinsic_metadata_t               ig_intr_md;
    ingress_intrinsic_metadata_from_parser_t   ig_prsr_md;
    ingress_intrinsic_metadata_for_deparser_t  ig_dprsr_md;
    ingress_intrinsic_metadata_for_tm_t        ig_tm_md;
    egress_metadata_t                          eg;
    egress_intrinsic_metadata_t                eg_intr_md;
    egress_intrinsic_metadata_from_parser_t    eg_prsr_md;
    egress_intrinsic_metadata_for_deparser_t   eg_dprsr_md;
    egress_intrinsic_metadata_for_output_port_t eg_oport_md;
}

parser SwitchParser(packet_in packet, out headers_t hdr, inout switch_metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    GradlaneParser() gradlane;

    state start {
        meta.ig_intr_md.ingress_port = standard_metadata.ingress_port;
        gradlane.apply(packet, hdr, meta.ig, meta.ig_intr_md);
        transition accept;
    }
}

control SwitchVerifyChecksum(inout headers_t hdr, inout switch_metadata_t meta) {
    GradlaneVerifyChecksum() checksum;

    apply {
        checksum.apply(hdr, meta.eg.common);
    }
}

control SwitchIngress(inout headers_t hdr, inout switch_metadata_t meta, inout standard_metadata_t standard_metadata) {
    GradlaneIngress() GradlaneIngress_;

    apply {
        if (standard_metadata.parser_error != error.NoError) {
            meta.ig_prsr_md.parser_err = 2;
        }
        meta.ig.checksum_error = standard_metadata.checksum_error == 1;
        GradlaneIngress_.apply(hdr, meta.ig, meta.ig_intr_md, meta.ig_prsr_md, meta.ig_dprsr_md, meta.ig_tm_md);

        if (meta.ig_dprsr_md.digest_type == DIGEST_VIOLATION) {
            digest<guard_violation_t>(1, { meta.ig.ingress_port, hdr.gradlane.job, meta.ig.common.source });
        }
        meta.eg.bridged = meta.ig.bridged;
        meta.eg.common.gradient = meta.ig.bridged.origin == Origin.GRADIENT;
        standard_metadata.priority = meta.ig_tm_md.qid[2:0];
        if (meta.ig_dprsr_md.mirror_type == MIRROR_TRIMMED) {
            // The session's port and length, and the top queue.
            meta.eg.trimmed = { Origin.TRIMMED, meta.ig.ttl, hdr.ethernet.dst, hdr.ethernet.src };
            standard_metadata.egress_spec = meta.ig.mirror_session[9:1];
            standard_metadata.priority = 7;
            truncate(meta.ig.mirror_session[0:0] == 1 ? TRIMMED_IPV6_BYTES : TRIMMED_IPV4_BYTES);
        } else if (meta.ig_dprsr_md.drop_ctl != 0) {
            mark_to_drop(standard_metadata);
        } else if (meta.ig_tm_md.mcast_grp_a != 0) {
            standard_metadata.mcast_grp = meta.ig_tm_md.mcast_grp_a;
        } else {
            standard_metadata.egress_spec = meta.ig_tm_md.ucast_egress_port;
        }
    }
}

control SwitchEgress(inout headers_t hdr, inout switch_metadata_t meta, inout standard_metadata_t standard_metadata) {
    GradlaneEgress() GradlaneEgress_;

    apply {
        if (meta.ig_tm_md.bypass_egress == 0) {
            meta.eg_intr_md.egress_port = standard_metadata.egress_port;
            meta.eg_intr_md.deq_qdepth = standard_metadata.deq_qdepth;
            meta.eg_intr_md.deq_timedelta = standard_metadata.deq_timedelta[7:0] ++ 10w0;
            GradlaneEgress_.apply(hdr, meta.eg, meta.eg_intr_md, meta.eg_prsr_md, meta.eg_dprsr_md, meta.eg_oport_md);
            if (meta.eg_dprsr_md.drop_ctl != 0) {
                mark_to_drop(standard_metadata);
            }
        }
    }
}

control SwitchComputeChecksum(inout headers_t hdr, inout switch_metadata_t meta) {
    GradlaneComputeChecksum() checksum;

    apply {
        checksum.apply(hdr, meta.eg.common);
    }
}

control SwitchDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.udp);
        packet.emit(hdr.gradlane);
        packet.emit(hdr.hop);
#ifdef AGGREGATION
        packet.emit(hdr.sum);
        packet.emit(hdr.lanes);
#endif
    }
}

@pkginfo(name = "gradlane", version = "1.0.0")
V1Switch(SwitchParser(), SwitchVerifyChecksum(), SwitchIngress(), SwitchEgress(), SwitchComputeChecksum(),
         SwitchDeparser()) main;
