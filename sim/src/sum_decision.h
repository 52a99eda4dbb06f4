/* SPDX-License-Identifier: GPL-2.0-only
 *
 * How the workers of a job whose gradients a switch sums go on after all have said how far they are: `decide` of
 * gradlane/control/sums.py.
 */
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace sim {

/* Of a worker that has halted. `waits`: us that a sum has been missing for; `streams`: by tensor, the latest step for which it
 * needs nothing of the switch any more, and the latest that it has begun. */
struct SumState {
    struct Stream {
        uint32_t completed, begun;
    };
    uint64_t waits = 0;
    std::map<uint16_t, Stream> streams;
};

/* A tensor, and its step. */
using SumStep = std::pair<uint16_t, uint32_t>;

/* `reruns`: steps that all have begun and not all have completed; `stuck`: those of them that the switch has lost; `late`: steps
 * that not all have begun. */
struct SumDecision {
    std::vector<SumStep> stuck, reruns, late;
};

/* `before`: at the last halt; empty: there was none. `least`: us since then after which a sum is missing for good. Throws
 * std::logic_error if the states contradict each other. */
SumDecision decide(const std::vector<SumState>& states, const std::vector<SumState>& before, uint64_t least);

} // namespace sim
