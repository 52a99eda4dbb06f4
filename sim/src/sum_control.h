/* SPDX-License-Identifier: GPL-2.0-only
 *
 * What the agents of a job whose gradients a switch sums agree on over their control connections (gradlane/daemon/sums.py): when
 * all compare how far they are, that hosts sum from then on, and when the switch is tried again. Messages of the connections
 * take no time, but none passes to or from a host that is not connected.
 */
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sum_decision.h"

extern "C" {
#include "engine/engine.h"
}

namespace sim {

class SumControl {
  public:
    /* By rank; rank 0 leads. */
    SumControl(std::vector<gl_engine*> engines, uint32_t generation);

    std::function<std::vector<bool>()> connected; /* with rank 0, by rank */
    std::function<void(unsigned rank)> wake;      /* its engine has something to do */
    std::function<void(const std::string&)> fail;
    std::function<uint64_t()> now;                /* us */

    static constexpr uint64_t TICK = 50'000; /* us */
    /* Once a tick. */
    void look();
    /* That of a step's submissions. A rank begins one. */
    uint32_t begin(uint32_t step);

    unsigned halts() const { return halts_; }
    unsigned fallbacks() const { return fallbacks_; }
    bool by_switch() const { return by_switch_; }

  private:
    struct Worker {
        gl_engine* engine;
        uint64_t waits = 0, patience = 0;
        int64_t reported = -1; /* the halt after which the leader was told that a sum is missing */
        bool answered = false;
    };
    std::vector<Worker> workers_;
    uint32_t generation_, older_; /* of submissions: from step first_ on, and before */
    uint32_t agreed_;             /* the latest; hosts sum what is of older ones */
    uint32_t first_ = 1, latest_ = 0;
    bool by_switch_ = true, wanted_ = false, halted_ = false;
    unsigned halts_ = 0, fallbacks_ = 0;
    uint64_t since_ = UINT64_MAX; /* us, since the last halt; UINT64_MAX: there was none */
    uint64_t open_ = 0, began_ = 0, back_ = UINT64_MAX, rest_;
    std::vector<SumState> states_, before_;

    void halt(const std::vector<bool>& connected);
    void gather(const std::vector<bool>& connected);
    void resume();
    void watch(Worker& worker);
};

} // namespace sim
