// SPDX-License-Identifier: Apache-2.0
// The Gradlane data plane for Tofino (TNA) and Tofino 2 (T2NA).

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "../shared/types.p4"
#include "arch.p4"
#include "headers.p4"
#include "../shared/metadata.p4"
#include "../shared/validation.p4"
#include "../shared/admission.p4"
#include "../shared/guard.p4"
#include "../shared/tagging.p4"
#include "../shared/trimming.p4"
#include "../shared/marking.p4"
#include "../shared/replication.p4"
#include "../shared/punting.p4"
#include "../shared/rewriting.p4"
#include "../shared/tracing.p4"
#include "parser.p4"
#include "checksums.p4"
#include "routing.p4"
#include "congestion.p4"
#include "telemetry.p4"
#ifdef AGGREGATION
#include "slots.p4"
#include "aggregation.p4"
#endif

control GradlaneIngress(inout headers_t hdr, inout ingress_metadata_t meta,
                        in ingress_intrinsic_metadata_t ig_intr_md,
                        in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                        inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                        inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Admission() admission;
    Guard() guard;
    Tagging() tagging;
    Routing() routing;
    Forwarding() forwarding;
#ifndef SMALLER_PROFILE
    Replication() replication;
#endif
    Policy() policy;
    Congestion() congestion;
#ifndef AGGREGATION
    // There is no room for these beside sums.
    Budget() budget;
    Mirroring() mirroring;
#endif
    Marking() marking;
    Punting() punting;
    Counted() counted;
    Telemetry() telemetry;
#ifdef AGGREGATION
    SumTree() sum_tree;
    Aggregation() aggregation;
    Refusal() refusal;
    SumCounter() sum_counter;
#endif

    // What goes through a hash unit may lie anywhere: otherwise too many numbers would have to lie side by side.
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) lower_half;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) lower_half_again;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) copy;

    @hidden
    action halve() {
        meta.verdict.half_budget = meta.common.share >> 1;
    }

    apply {
        if (hdr.packet_out.isValid()) {
            meta.common.egress_port = hdr.packet_out.egress_port;
            meta.common.queue_class = CONTROL_CLASS;
            hdr.packet_out.setInvalid();
            ig_tm_md.bypass_egress = 1;
        } else {
            meta.lookup.turn = lower_half.get({ hdr.gradlane.message[15:0] });
            meta.number = lower_half_again.get({ hdr.gradlane.message[15:0] });
            admission.apply(hdr, meta.common, ig_intr_md.ingress_port, ig_prsr_md.parser_err != PARSER_ERROR_OK,
                            meta.checksum_error);
            meta.common.share = copy.get({ hdr.gradlane.budget });
            guard.apply(hdr, meta.common, ig_intr_md.ingress_port, ig_dprsr_md.digest_type);
            counted.apply(hdr, meta.common, meta.counted);
#ifdef AGGREGATION
            sum_tree.apply(hdr, meta.common, meta.sum, ig_intr_md.ingress_port);
#else
            halve();
            // The slot of the message, in two steps.
            meta.common.slot_mask[15:0] = meta.common.slot_mask[15:0] & meta.number;
#endif
            if (!meta.common.drop) {
                tagging.apply(hdr, meta.common, ig_intr_md.ingress_port);
            }
            routing.apply(hdr, meta.common, meta.lookup);
#ifdef SMALLER_PROFILE
            // In another order the program takes 13 stages of Tofino 1.
            forwarding.apply(hdr, meta.common, meta.lookup);
            policy.apply(meta.common, meta.policy, meta.verdict.half_budget);
#else
            policy.apply(meta.common, meta.policy, meta.verdict.half_budget);
#ifdef AGGREGATION
            if (meta.sum.fits == 1 && meta.common.gradient && !meta.common.drop && meta.lookup.routed
                && meta.lookup.route == Route.MULTICAST && hdr.ipv4.ttl[7:1] != 0) {
                meta.sum.summed = 1;
            }
            if (meta.sum.summed == 1) {
                aggregation.apply(hdr, meta.common, meta.sum, ig_intr_md.ingress_port);
            } else
#endif
            {
                forwarding.apply(hdr, meta.common, meta.lookup);
#ifdef AGGREGATION
                refusal.apply(meta.common, meta.sum);
#endif
                replication.apply(hdr, meta.common, ig_intr_md.ingress_port);
                congestion.apply(hdr, meta.common, meta.policy);
                // No such group, or none of its members is alive.
                if (!meta.common.drop && !meta.common.punt && !meta.common.multicast
                    && meta.common.egress_port == 0) {
                    meta.common.reason = Reason.DROPPED_NO_ROUTE;
                    meta.common.drop = true;
                }
            }
#endif
#ifndef AGGREGATION
            meta.common.slot_base[15:0] = meta.common.slot_base[15:0] + meta.common.slot_mask[15:0];
#endif
            if (meta.common.punt) {
                punting.apply(hdr, meta.common, ig_intr_md.ingress_port);
                ig_tm_md.bypass_egress = 1;
            } else {
#ifdef SMALLER_PROFILE
                congestion.apply(hdr, meta.common, meta.policy);
                if (!meta.common.drop && !meta.common.multicast && meta.common.egress_port == 0) {
                    meta.common.reason = Reason.DROPPED_NO_ROUTE;
                    meta.common.drop = true;
                }
#endif
#ifndef AGGREGATION
                mirroring.apply(meta, ig_dprsr_md);
#endif
                marking.apply(hdr, meta.common);
#ifndef AGGREGATION
                budget.apply(hdr, meta.common, meta.policy, meta.verdict, ig_dprsr_md);
#endif
                meta.bridged.setValid();
                meta.bridged.origin = Origin.ORDINARY;
                if (meta.common.gradient) {
                    meta.bridged.origin = Origin.GRADIENT;
                }
            }
        }
#ifdef AGGREGATION
        sum_counter.apply(meta.common, meta.sum);
#endif
        telemetry.apply(hdr, meta.common, meta.counted);

        // For the deparser and for egress, whether it is needed or not.
        meta.ingress_port = (bit<16>)ig_intr_md.ingress_port;
        meta.mirror_origin = Origin.TRIMMED;
        if (hdr.ipv4.isValid()) {
            meta.ttl = hdr.ipv4.ttl;
        } else {
            meta.ttl = hdr.ipv6.hop_limit;
        }
        meta.bridged.ingress_port = ig_intr_md.ingress_port;
#ifdef AGGREGATION
        if (meta.sum.summed == 1) {
            // Of whatever port it came, it is this switch's own.
            meta.bridged.ingress_port = NO_PORT;
        }
#endif
        meta.bridged.switch_id = meta.common.switch_id;
        meta.bridged.multicast = (bit<1>)meta.common.multicast;
        meta.bridged.color = meta.common.color;
        meta.bridged.queue_class = meta.common.queue_class;

        // Enforced in one place: a packet leaves only if nothing above decided to drop it. Of a slice that is trimmed only
        // the mirrored copy does.
        ig_tm_md.qid = (QueueId_t)meta.common.queue_class;
        if (meta.common.drop) {
            ig_dprsr_md.drop_ctl = 1;
#ifdef AGGREGATION
        } else if (meta.sum.port != 0) {
            ig_tm_md.ucast_egress_port = meta.sum.port;
#endif
        } else if (meta.common.multicast && !meta.common.punt) {
            ig_tm_md.mcast_grp_a = meta.common.next_hop;
        } else {
            ig_tm_md.ucast_egress_port = meta.common.egress_port;
        }
    }
}

control GradlaneEgress(inout headers_t hdr, inout egress_metadata_t meta,
                       in egress_intrinsic_metadata_t eg_intr_md,
                       in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
                       inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
                       inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    Trimming() trimming;
    MulticastQueue() multicast_queue;
    Rewriting() rewriting;
    Tracing() tracing;
    UdpSum() udp_sum;

    apply {
        if (meta.trimmed.isValid()) {
            hdr.ethernet.dst = meta.trimmed.dst;
            hdr.ethernet.src = meta.trimmed.src;
            trimming.apply(hdr, meta.common);
            if (hdr.ipv4.isValid()) {
                hdr.ipv4.ttl = meta.trimmed.ttl;
                hdr.ipv4.dscp = CONTROL_CLASS ++ PROTECTED;
                hdr.ipv4.ecn = ECN_CONGESTED;
            } else {
                hdr.ipv6.hop_limit = meta.trimmed.ttl;
                hdr.ipv6.dscp = CONTROL_CLASS ++ PROTECTED;
                hdr.ipv6.ecn = ECN_CONGESTED;
            }
        }
        rewriting.apply(hdr, meta.common, eg_intr_md.egress_port);
        if (meta.bridged.multicast == 1 && eg_intr_md.egress_port == meta.bridged.ingress_port) {
            // An aggregator does not hear its own multicast.
            eg_dprsr_md.drop_ctl = 1;
        } else {
            if (meta.bridged.multicast == 1 && meta.common.gradient) {
                multicast_queue.apply(hdr, meta.bridged.color, eg_intr_md.egress_port);
            }
            if (meta.common.gradient && hdr.gradlane.kind == KIND_TRACE
                && hdr.gradlane.flags & FLAG_RETURNED == 0) {
                tracing.apply(hdr, meta.bridged.switch_id, meta.bridged.ingress_port, eg_intr_md.egress_port,
                              meta.bridged.queue_class, meta.bridged.color, (bit<32>)eg_intr_md.deq_qdepth,
                              (bit<32>)eg_intr_md.deq_timedelta);
            }
        }
        udp_sum.apply(hdr, meta.common, meta.trimmed.isValid());
    }
}

control GradlaneIngressDeparser(packet_out packet, inout headers_t hdr, in ingress_metadata_t meta,
                                in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    Digest<guard_violation_t>() violations;
#ifndef AGGREGATION
    Mirror() trimmed;
#endif

    apply {
        if (ig_dprsr_md.digest_type == DIGEST_VIOLATION) {
            violations.pack({ meta.ingress_port, hdr.gradlane.job, meta.common.source });
        }
#ifndef AGGREGATION
        if (ig_dprsr_md.mirror_type == MIRROR_TRIMMED) {
            trimmed.emit<trimmed_h>(meta.mirror_session,
                                    { meta.mirror_origin, meta.ttl, hdr.ethernet.dst, hdr.ethernet.src });
        }
#endif
        packet.emit(meta.bridged);
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.udp);
        packet.emit(hdr.gradlane);
#ifdef AGGREGATION
        packet.emit(hdr.sum);
        packet.emit(hdr.lanes);
#endif
    }
}

control GradlaneEgressDeparser(packet_out packet, inout headers_t hdr, in egress_metadata_t meta,
                               in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    GradlaneComputeChecksum() checksum;

    apply {
        checksum.apply(hdr, meta.common);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.udp);
        packet.emit(hdr.gradlane);
        packet.emit(hdr.hop);
    }
}

Pipeline(GradlaneParser(), GradlaneIngress(), GradlaneIngressDeparser(), GradlaneEgressParser(), GradlaneEgress(),
         GradlaneEgressDeparser()) pipe;

@pa_auto_init_metadata
@pkginfo(name = "gradlane", version = "1.0.0")
Switch(pipe) main;
