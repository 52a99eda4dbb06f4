// SPDX-License-Identifier: Apache-2.0
// What is left of a slice whose payload is cut off: its header, in the top queue, so that the receiver learns at once.
// How a target cuts the bytes is its own matter. No UDP checksum, as IPv4 allows; over IPv6 checksums.p4 writes another.

control Trimming(inout headers_t hdr, inout metadata_t meta) {
    apply {
        hdr.gradlane.kind = KIND_TRIMMED;
        hdr.udp.length = GRADLANE_UDP_LENGTH;
        hdr.udp.checksum = 0;
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.total_length = IPV4_BYTES + GRADLANE_UDP_LENGTH;
        } else {
            hdr.ipv6.payload_length = GRADLANE_UDP_LENGTH;
        }
        meta.queue_class = CONTROL_CLASS;
        meta.drop_precedence = PROTECTED;
        meta.ecn = ECN_CAPABLE;
    }
}
