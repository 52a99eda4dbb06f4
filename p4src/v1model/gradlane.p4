// SPDX-License-Identifier: Apache-2.0
// The Gradlane data plane for v1model targets (BMv2, gradlane-switch).

#include <core.p4>
#include <v1model.p4>

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
#include "aggregation.p4"
#endif

control GradlaneIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Admission() admission;
    Guard() guard;
    Tagging() tagging;
    Routing() routing;
    Replication() replication;
    Congestion() congestion;
    Marking() marking;
    Punting() punting;
    Telemetry() telemetry;
#ifdef AGGREGATION
    Aggregation() aggregation;
#endif

    apply {
        if (hdr.packet_out.isValid()) {
            meta.egress_port = hdr.packet_out.egress_port;
            meta.queue_class = CONTROL_CLASS;
            hdr.packet_out.setInvalid();
        } else {
            admission.apply(hdr, meta, standard_metadata.ingress_port,
                            standard_metadata.parser_error != error.NoError, standard_metadata.checksum_error == 1);
            DigestType_t digest_type = 0;
            guard.apply(hdr, meta, standard_metadata.ingress_port, digest_type);
            if (digest_type == DIGEST_VIOLATION) {
                digest<guard_violation_t>(1, {
                    (bit<16>)standard_metadata.ingress_port, hdr.gradlane.job, meta.source });
            }
            if (!meta.drop) {
                tagging.apply(hdr, meta, standard_metadata.ingress_port);
                routing.apply(hdr, meta, standard_metadata);
#ifdef AGGREGATION
                if (meta.gradient && IS_SUM(hdr.gradlane)) {
                    aggregation.apply(hdr, meta, standard_metadata.ingress_port);
                } else
#endif
                replication.apply(hdr, meta, standard_metadata.ingress_port);
            }
            if (!meta.drop && meta.punt) {
                punting.apply(hdr, meta, standard_metadata.ingress_port);
            } else if (!meta.drop) {
                // The ports of a multicast are chosen after ingress, so egress meters it.
                if (!meta.multicast) {
                    congestion.apply(hdr, meta, standard_metadata);
                }
                marking.apply(hdr, meta);
            }
        }
        telemetry.apply(hdr, meta, standard_metadata);

        // Enforced in one place: a packet leaves only if nothing above decided to drop it.
        if (meta.drop) {
            mark_to_drop(standard_metadata);
        } else {
            standard_metadata.priority = meta.queue_class;
            if (meta.multicast && !meta.punt) {
                standard_metadata.mcast_grp = meta.next_hop;
            } else {
                standard_metadata.egress_spec = meta.egress_port;
            }
        }
    }
}

control GradlaneEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    MulticastQueue() multicast_queue;
    Rewriting() rewriting;
    Tracing() tracing;
    UdpSum() udp_sum;
    Departures() departures;

    apply {
        if (meta.multicast && standard_metadata.egress_port == standard_metadata.ingress_port && !SUMMED_HERE(hdr)) {
            // An aggregator does not hear its own multicast.
            mark_to_drop(standard_metadata);
            return;
        }
        if (!meta.punt) {
            if (meta.multicast && meta.gradient) {
                multicast_queue.apply(hdr, meta, standard_metadata);
            }
            rewriting.apply(hdr, meta, standard_metadata.egress_port);
            if (meta.gradient && hdr.gradlane.kind == KIND_TRACE && hdr.gradlane.flags & FLAG_RETURNED == 0) {
                tracing.apply(hdr, meta.switch_id, standard_metadata.ingress_port, standard_metadata.egress_port,
                              meta.queue_class, meta.color, (bit<32>)standard_metadata.deq_qdepth,
                              standard_metadata.deq_timedelta * 1000);
            }
            udp_sum.apply(hdr, meta, meta.reason == Reason.TRIMMED_YELLOW || meta.reason == Reason.TRIMMED_RED);
        }
        departures.apply(hdr, meta, standard_metadata.egress_port);
    }
}

control GradlaneDeparser(packet_out packet, in headers_t hdr) {
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
        packet.emit(hdr.words);
#endif
    }
}

@pkginfo(name = "gradlane", version = "1.0.0")
V1Switch(GradlaneParser(), GradlaneVerifyChecksum(), GradlaneIngress(), GradlaneEgress(), GradlaneComputeChecksum(),
         GradlaneDeparser()) main;
