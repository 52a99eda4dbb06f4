// SPDX-License-Identifier: Apache-2.0
// Whether a Gradlane header holds together. One that does not makes its packet ordinary traffic, and is counted.

// Bits that no number of a slice has (below 8192), that no budget has (8192 at most), and the sign of a difference.
const bit<16> BEYOND_SLICES = 0xE000;
const bit<16> BEYOND_BUDGETS = 0xC000;
const bit<16> SIGN = 0x8000;

control Validation(in headers_t hdr, inout metadata_t meta) {
    // Differences of 16 bits: their upper bits tell which number is the larger one, as none has more than 14 bits.
    bit<16> last = 0;
    bit<16> before_end = 0;
    bit<16> beyond_budget = 0;
    bit<16> header_length = 0;

    @hidden
    action subtract() {
        last = hdr.gradlane.slices - 1;
        before_end = hdr.gradlane.slice - hdr.gradlane.slices;
        beyond_budget = hdr.gradlane.slices - hdr.gradlane.budget;
        header_length = hdr.udp.length - hdr.gradlane.length;
    }

    @hidden
    action malformed() {
        meta.reason = Reason.MALFORMED;
    }

    // This switch would forward it as ordinary traffic, and the next one trust it.
    @hidden
    action forged() {
        meta.drop = true;
        meta.reason = Reason.DROPPED_GUARD;
    }

    apply {
        subtract();
        // One by one: a hardware target compares few bits at a time.
        if (meta.drop) {
            // Nobody asks any more.
        } else if (hdr.gradlane.kind & UNASSIGNED_KINDS != 0) {
            malformed();
        } else if (last & BEYOND_SLICES != 0 || hdr.gradlane.slice & BEYOND_SLICES != 0) {
            malformed();
        } else if (before_end & SIGN == 0) {
            malformed();
        } else if (hdr.gradlane.budget & BEYOND_BUDGETS != 0 || beyond_budget & SIGN != 0) {
            malformed();
        } else if (hdr.gradlane.kind == KIND_TRIMMED) {
            // The header of a slice that is gone; only a switch can have made one.
            if (meta.from_fabric == 0) {
                forged();
            } else if (hdr.udp.length != GRADLANE_UDP_LENGTH) {
                malformed();
            } else {
                meta.gradient = true;
            }
        } else if (header_length != GRADLANE_UDP_LENGTH) {
            malformed();
        } else {
            meta.gradient = true;
        }
    }
}
