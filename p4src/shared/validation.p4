// SPDX-License-Identifier: Apache-2.0
// Whether a Gradlane header holds together. One that does not makes its packet ordinary traffic, and is counted.

control Validation(in headers_t hdr, inout metadata_t meta) {
    apply {
        // Differences of 16 bits: their upper bits tell which number is the larger one, as none has more than 14 bits.
        bit<16> last = hdr.gradlane.slices - 1;
        bit<16> before_end = hdr.gradlane.slice - hdr.gradlane.slices;
        bit<16> beyond_budget = hdr.gradlane.slices - hdr.gradlane.budget;
        bit<16> other_length = hdr.udp.length - GRADLANE_UDP_LENGTH - hdr.gradlane.length;
        if (hdr.gradlane.kind == KIND_TRIMMED) {
            // The header of a slice that is gone; only a switch can have made one.
            other_length = hdr.udp.length - GRADLANE_UDP_LENGTH;
            if (meta.from_fabric == 0) {
                other_length = 1;
            }
        }
        meta.gradient = true;
        if (last[15:13] != 0 || hdr.gradlane.slice[15:13] != 0 || before_end[15:15] == 0
            || hdr.gradlane.budget[15:14] != 0 || beyond_budget[15:15] != 0 || other_length != 0) {
            meta.gradient = false;
            meta.reason = Reason.MALFORMED;
        }
    }
}
