// SPDX-License-Identifier: Apache-2.0
// The Gradlane data plane for v1model targets (BMv2, gradlane-switch).

#include <core.p4>
#include <v1model.p4>

#include "../shared/types.p4"
#include "../shared/headers.p4"
#include "metadata.p4"
#include "parser.p4"
#include "guard.p4"
#include "tagging.p4"
#include "routing.p4"
#include "congestion.p4"
#include "telemetry.p4"

control GradlaneVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control GradlaneIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Guard() guard;
    Tagging() tagging;
    Routing() routing;
    Congestion() congestion;
    Telemetry() telemetry;

    apply {
        if (!hdr.ipv4.isValid()) {
            meta.drop = true;
            meta.reason = Reason.DROPPED_NOT_IPV4;
        } else if (hdr.ipv4.ihl != 5) {
            meta.drop = true;
            meta.reason = Reason.DROPPED_OPTIONS;
        } else {
            if (hdr.gradlane.isValid()) {
                guard.apply(hdr, meta, standard_metadata);
            }
            if (!meta.drop) {
                tagging.apply(hdr, meta, standard_metadata);
                routing.apply(hdr, meta, standard_metadata);
            }
            // The ports of a multicast are chosen after ingress; its slices are never droppable (budget 0).
            if (!meta.drop && !meta.multicast) {
                congestion.apply(hdr, meta, standard_metadata);
            }
        }
        telemetry.apply(hdr, meta, standard_metadata);

        // Enforced in one place: a packet leaves only if nothing above decided to drop it.
        if (meta.drop) {
            mark_to_drop(standard_metadata);
        } else {
            standard_metadata.priority = meta.queue_class;
            if (!meta.multicast) {
                standard_metadata.egress_spec = meta.egress_port;
            }
        }
    }
}

control GradlaneEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        // An aggregator does not hear its own multicast.
        if (meta.multicast && standard_metadata.egress_port == standard_metadata.ingress_port) {
            mark_to_drop(standard_metadata);
        }
    }
}

control GradlaneComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(
            hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_length,
              hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control GradlaneDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.gradlane);
    }
}

@pkginfo(name = "gradlane", version = "0.1.0")
V1Switch(GradlaneParser(), GradlaneVerifyChecksum(), GradlaneIngress(), GradlaneEgress(), GradlaneComputeChecksum(),
         GradlaneDeparser()) main;
