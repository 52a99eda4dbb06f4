/* SPDX-License-Identifier: GPL-2.0-only */
#include "sum_decision.h"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace sim {

SumDecision decide(const std::vector<SumState>& states, const std::vector<SumState>& before, uint64_t least) {
    SumDecision found;
    std::set<uint16_t> tensors;
    for (const SumState& state : states)
        for (const auto& [tensor, stream] : state.streams) tensors.insert(tensor);
    for (const uint16_t tensor : tensors) {
        uint32_t step = UINT32_MAX;
        for (const SumState& state : states)
            if (const auto it = state.streams.find(tensor); it != state.streams.end()) step = std::min(step, it->second.completed + 1);
        bool waiting = false, missing = false, done = false, lost = !before.empty();
        for (size_t rank = 0; rank < states.size(); rank++) {
            const auto it = states[rank].streams.find(tensor);
            const bool begun = it != states[rank].streams.end() && it->second.begun >= step;
            const bool waits = begun && it->second.completed < step;
            missing |= !begun;
            waiting |= waits;
            done |= begun && !waits;
            if (before.empty()) continue;
            const auto was = before[rank].streams.find(tensor);
            const bool had_begun = was != before[rank].streams.end() && was->second.begun >= step;
            lost &= had_begun && !(waits && states[rank].waits < before[rank].waits + least);
        }
        if (!waiting) continue;
        if (missing && done) throw std::logic_error("a rank has completed a step that another one has not begun");
        if (missing) {
            found.late.push_back({tensor, step});
            continue;
        }
        found.reruns.push_back({tensor, step});
        if (lost) found.stuck.push_back({tensor, step});
    }
    return found;
}

} // namespace sim
