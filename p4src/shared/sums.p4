// SPDX-License-Identifier: Apache-2.0
// What every target that sums gradients has in common: the header of a SUM, sizes, and what may become of it.

#ifndef GRADLANE_SUMS_P4
#define GRADLANE_SUMS_P4

// In front of the lanes of a SUM (gradlane.wire, docs/wire-format.md).
header sum_h {
    bit<32> generation;
    bit<32> members;     // who is in it; of a worker's contribution: who may be missing
    bit<16> slot;        // one of the job's
    bit<8>  exponent;
    bit<8>  epoch;       // of the switch that its receiver or sender is at
}

const bit<16> SUM_BYTES = 12;
const bit<16> SUM_WORD = 128;                   // bytes: lanes come in words
const bit<8> FLAG_PULL = 1;
const bit<8> FLAG_SUM = 32;

const bit<32> SUM_SLOTS = 4096;
const bit<32> SUM_TREES = 4096;         // of each job 16
const bit<32> CONTRIBUTORS = 1024;
const bit<32> SUBTREES = 1024;
const bit<32> SUM_EVENTS = 4096;        // job index (8 bits) ++ event (4)

// Values of Reason that no other profile has.
const Reason ABSORBED = (Reason)5w29;       // dropped: added to a sum that is not finished
const Reason DROPPED_SUM = (Reason)5w30;    // for a sum, but in none

// What became of a SUM. The value is part of the index of the counter `sums`.
enum bit<4> SumEvent {
    CONTRIBUTION = 0,   // is in the slot
    RESULT       = 1,   // the sum of all goes to the group: this was the last one, or it has come from above
    ANSWER       = 2,   // came again after the result, and got it
    DUPLICATE    = 3,   // came again before the result; a result that is here already
    STALE        = 4,   // a newer slice has the slot, or it is of another length, epoch or tree
    NO_SLOTS     = 5,   // its job is not summed here, or its sender contributes to nothing
    REFUSED      = 6,   // does not have the form of a contribution
    LATE         = 7,   // came after the result, which is without it, and got it
    PARTIAL      = 8    // the sum of all beneath this switch goes up; or the result, which those above may have lost
}

#endif
