/* SPDX-License-Identifier: GPL-2.0-only */
#include "job.h"

#include <algorithm>
#include <stdexcept>

#include "ns3/nstime.h"
#include "ns3/simulator.h"

namespace sim {

namespace {
uint64_t now() { return static_cast<uint64_t>(ns3::Simulator::Now().GetNanoSeconds()); }
} // namespace

Job::Job(const Json& spec)
    : number_(spec.at("id")), workers_(static_cast<unsigned>(spec.at("members").size()) - spec.value("servers", 0U)),
      servers_(spec.value("servers", 0U)), steps_(spec.at("steps")), hosts_(spec.at("members").get<std::vector<unsigned>>()),
      grouped_(spec.contains("groups")), groups_(spec.value("groups", Json{}), number_, workers_),
      compute_(spec.value("compute", uint64_t{0})), delays_(spec.value("delays", std::vector<std::vector<uint64_t>>{})),
      progress_(workers_), step_ends_(steps_), step_arrivals_(steps_) {
    if (grouped_ && servers_) throw std::invalid_argument("job " + std::to_string(number_) + " has groups and servers");
    for (const Json& t : spec.at("tensors")) tensors_.push_back({t.at("ready"), t.at("bytes"), t.at("layer")});
    for (Progress& p : progress_) p.submitted.resize(tensors_.size());
    const auto weights = spec.value("weights", std::vector<uint32_t>{});
    if (weights.empty()) return;
    if (grouped_ || weights.size() != (servers_ ? servers_ : workers_))
        throw std::invalid_argument("job " + std::to_string(number_) + " must have a weight for each owner, and no groups");
    shares_.push_back(0);
    for (const uint32_t weight : weights) shares_.push_back(shares_.back() + weight);
    if (!shares_.back()) throw std::invalid_argument("job " + std::to_string(number_) + ": all weights are 0");
}

void Job::start() {
    for (unsigned rank = 0; rank < workers_; rank++) begin(rank);
}

void Job::begin(unsigned rank) {
    Progress& p = progress_[rank];
    if (p.step == steps_) return finish(rank);
    p.step++;
    p.computing = true;
    const uint64_t delay = p.step <= delays_.size() ? delays_[p.step - 1][rank] : 0;
    if (!grouped_) {
        p.group = groups_.after(rank, p.step), p.exchanged = p.step;
        p.numbers.assign(1, p.step);
        p.open = static_cast<unsigned>(tensors_.size());
        for (unsigned t = 0; t < tensors_.size(); t++)
            ns3::Simulator::Schedule(ns3::NanoSeconds(static_cast<int64_t>(delay + tensors_[t].ready)), [this, rank, t] {
                if (!over()) contribute(rank, t);
            });
    }
    ns3::Simulator::Schedule(ns3::NanoSeconds(static_cast<int64_t>(delay + compute_)), [this, rank] { computed(rank); });
}

void Job::contribute(unsigned rank, unsigned tensor) {
    Progress& p = progress_[rank];
    p.submitted[tensor] = now();
    submit(rank, {p.group, p.numbers[p.group], tensor});
}

void Job::computed(unsigned rank) {
    if (over()) return;
    Progress& p = progress_[rank];
    p.computing = false;
    if (grouped_) p.due = true, p.next = groups_.after(rank, p.step);
    go_on(rank);
}

void Job::average(unsigned rank, unsigned group) {
    Progress& p = progress_[rank];
    p.group = group, p.exchanged = p.step;
    if (groups_.members(group).size() == 1) return;
    if (p.numbers.size() <= group) p.numbers.resize(group + 1);
    p.numbers[group]++;
    p.open = static_cast<unsigned>(tensors_.size());
    for (unsigned t = 0; t < tensors_.size() && !over(); t++) contribute(rank, t);
}

/* The computation of a step is over, or an average: of that step, or where averages are behind, of the one before. */
void Job::go_on(unsigned rank) {
    Progress& p = progress_[rank];
    if (p.computing || p.open || over()) return;
    if (p.ended) return finish(rank);
    if (p.due) {
        p.due = false;
        average(rank, p.next);
        if (p.open && !groups_.behind()) return;
    }
    if (over()) return;
    step_ends_[p.step - 1] = now();
    if (++step_arrivals_[p.step - 1] == workers_ && on_step) on_step(p.step);
    begin(rank);
}

/* It takes part in what was decided before. */
void Job::finish(unsigned rank) {
    Progress& p = progress_[rank];
    p.ended = true;
    if (p.open) return;
    if (!p.end) step_ends_[steps_ - 1] = p.end = now();
    if (grouped_) average(rank, groups_.left(rank, p.step));
    if (p.open || over()) return;
    finished_++;
    if (finished_ == workers_ && on_over) on_over();
}

void Job::completed(unsigned rank, const Operation& operation) {
    Progress& p = progress_[rank];
    times_.push_back({p.submitted[operation.tensor], now(), p.exchanged, static_cast<uint16_t>(rank),
                      static_cast<uint16_t>(operation.tensor), operation.group});
    p.open--;
    go_on(rank);
}

uint64_t Job::submitted(unsigned rank, const Operation& operation) const {
    if (rank >= workers_) return 0;
    const Progress& p = progress_[rank];
    const bool current = p.group == operation.group && p.group < p.numbers.size() && p.numbers[p.group] == operation.number;
    return current ? p.submitted[operation.tensor] : 0;
}

void Job::fail(const std::string& why) {
    if (over()) return;
    error_ = why;
    if (on_over) on_over();
}

Json Job::result() const {
    Json operations = Json::array(), ends = Json::array();
    for (const OperationTime& t : times_) {
        operations.push_back({t.step, t.rank, t.tensor, t.start, t.end});
        if (grouped_) operations.back().push_back(groups_.members(t.group));
    }
    for (const Progress& p : progress_) ends.push_back(p.end);
    return {{"id", number_},
            {"error", error_},
            {"step_ends", step_ends_},
            {"steps_complete", std::count(step_arrivals_.begin(), step_arrivals_.end(), workers_)},
            {"worker_ends", ends},
            {"operations", operations}};
}

} // namespace sim
