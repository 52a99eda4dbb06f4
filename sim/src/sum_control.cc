/* SPDX-License-Identifier: GPL-2.0-only */
#include "sum_control.h"

#include <algorithm>
#include <stdexcept>

namespace sim {

namespace {

/* As daemon/sums.py has them; us. */
constexpr uint64_t OVERDUE = 250'000, MOST_OVERDUE = 4'000'000, HALT = 10'000'000, REST = 10'000'000, MOST_REST = 600'000'000;
constexpr unsigned MOST_STREAMS = 512;

} // namespace

SumControl::SumControl(std::vector<gl_engine*> engines, uint32_t generation)
    : generation_(generation), older_(generation), agreed_(generation), rest_(REST) {
    for (gl_engine* engine : engines) workers_.push_back({engine, 0, OVERDUE / 2});
}

uint32_t SumControl::begin(uint32_t step) {
    latest_ = std::max(latest_, step);
    return step < first_ ? older_ : generation_;
}

void SumControl::watch(Worker& worker) {
    worker.waits = std::min(gl_engine_sums_overdue(worker.engine, now()), worker.waits + TICK);
    if (worker.waits < OVERDUE) {
        worker.patience = OVERDUE / 2;
    } else if (since_ >= worker.patience && worker.reported != static_cast<int64_t>(halts_)) {
        worker.reported = halts_;
        wanted_ |= by_switch_;
    }
}

void SumControl::look() {
    const std::vector<bool> there = connected();
    if (since_ != UINT64_MAX) since_ += TICK;
    if (halted_) {
        open_ += TICK;
        gather(there);
        if (halted_ && open_ >= HALT) fail("a sum of the switch is missing, and not all have said how far they are");
        return;
    }
    for (unsigned rank = 0; rank < workers_.size(); rank++)
        if (there[rank]) watch(workers_[rank]);
    if (wanted_ && since_ >= OVERDUE) {
        halt(there);
    } else if (!by_switch_ && now() >= back_) {
        /* From a step on that nobody has begun. */
        older_ = generation_, generation_ = ++agreed_, first_ = latest_ + 1;
        by_switch_ = true, began_ = now();
    }
}

void SumControl::halt(const std::vector<bool>& connected) {
    wanted_ = false, halted_ = true, open_ = 0;
    halts_++;
    states_.assign(workers_.size(), {});
    for (Worker& worker : workers_) worker.answered = false;
    gather(connected);
}

/* Who can, halts and says how far it is. */
void SumControl::gather(const std::vector<bool>& connected) {
    bool all = true;
    for (unsigned rank = 0; rank < workers_.size(); rank++) {
        Worker& worker = workers_[rank];
        if (!worker.answered && connected[rank]) {
            worker.answered = true;
            SumState& state = states_[rank];
            state.waits = std::min(worker.waits, gl_engine_sums_overdue(worker.engine, now()));
            gl_engine_sums_halt(worker.engine);
            gl_sum_state streams[MOST_STREAMS];
            const unsigned count = gl_engine_sums_state(worker.engine, streams, MOST_STREAMS);
            for (unsigned i = 0; i < count; i++) state.streams[streams[i].tensor] = {streams[i].completed, streams[i].begun};
        }
        all &= worker.answered && connected[rank];
    }
    if (all) resume();
}

void SumControl::resume() {
    SumDecision decision;
    try {
        decision = decide(states_, before_, OVERDUE / 2);
    } catch (const std::logic_error& problem) {
        fail(problem.what());
        return;
    }
    before_ = states_;
    halted_ = false, since_ = 0;
    const bool by_switch = decision.stuck.empty();
    if (!by_switch) {
        if (now() - began_ >= MOST_REST) rest_ = REST;
        back_ = now() + rest_, rest_ = std::min(2 * rest_, MOST_REST);
        agreed_++, fallbacks_++;
        by_switch_ = false, began_ = now();
    }
    std::vector<gl_sum_rerun> reruns;
    for (const auto& [tensor, step] : decision.reruns) reruns.push_back({tensor, step});
    for (unsigned rank = 0; rank < workers_.size(); rank++) {
        Worker& worker = workers_[rank];
        if (by_switch) worker.patience = std::min(2 * worker.patience, MOST_OVERDUE);
        if (gl_engine_sums_resume(worker.engine, agreed_, by_switch, reruns.data(), static_cast<unsigned>(reruns.size()), now()))
            fail("rank " + std::to_string(rank) + " can't run steps again that the others have it run");
        wake(rank);
    }
}

} // namespace sim
