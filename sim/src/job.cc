/* SPDX-License-Identifier: GPL-2.0-only */
#include "job.h"

#include "ns3/nstime.h"
#include "ns3/simulator.h"

namespace sim {

namespace {
uint64_t now() { return static_cast<uint64_t>(ns3::Simulator::Now().GetNanoSeconds()); }
} // namespace

Job::Job(const Json& spec)
    : number_(spec.at("id")), workers_(static_cast<unsigned>(spec.at("members").size()) - spec.value("servers", 0U)),
      servers_(spec.value("servers", 0U)), steps_(spec.at("steps")), hosts_(spec.at("members").get<std::vector<unsigned>>()),
      compute_(spec.value("compute", uint64_t{0})), delays_(spec.value("delays", std::vector<std::vector<uint64_t>>{})),
      progress_(workers_), step_ends_(steps_), step_arrivals_(steps_) {
    for (const Json& t : spec.at("tensors")) tensors_.push_back({t.at("ready"), t.at("bytes"), t.at("layer")});
    for (Progress& p : progress_) p.submitted.resize(tensors_.size());
}

void Job::start() {
    for (unsigned rank = 0; rank < workers_; rank++) begin(rank);
}

void Job::begin(unsigned rank) {
    Progress& p = progress_[rank];
    if (p.step == steps_) {
        finished_++;
        if (finished_ == workers_ && on_over) on_over();
        return;
    }
    p.step++;
    p.open = static_cast<unsigned>(tensors_.size()) + 1;
    const uint64_t delay = p.step <= delays_.size() ? delays_[p.step - 1][rank] : 0;
    for (unsigned t = 0; t < tensors_.size(); t++) {
        ns3::Simulator::Schedule(ns3::NanoSeconds(static_cast<int64_t>(delay + tensors_[t].ready)), [this, rank, t, step = p.step] {
            if (over()) return;
            progress_[rank].submitted[t] = now();
            submit(rank, step, t);
        });
    }
    ns3::Simulator::Schedule(ns3::NanoSeconds(static_cast<int64_t>(delay + compute_)), [this, rank] { one_less(rank); });
}

void Job::one_less(unsigned rank) {
    Progress& p = progress_[rank];
    if (--p.open || over()) return;
    step_ends_[p.step - 1] = now();
    if (++step_arrivals_[p.step - 1] == workers_ && on_step) on_step(p.step);
    begin(rank);
}

void Job::completed(unsigned rank, uint32_t step, unsigned tensor) {
    times_.push_back({progress_[rank].submitted[tensor], now(), step, static_cast<uint16_t>(rank), static_cast<uint16_t>(tensor)});
    one_less(rank);
}

uint64_t Job::submitted(unsigned rank, uint32_t step, unsigned tensor) const {
    return rank < workers_ && progress_[rank].step == step ? progress_[rank].submitted[tensor] : 0;
}

void Job::fail(const std::string& why) {
    if (over()) return;
    error_ = why;
    if (on_over) on_over();
}

Json Job::result() const {
    Json operations = Json::array();
    for (const OperationTime& t : times_) operations.push_back({t.step, t.rank, t.tensor, t.start, t.end});
    return {{"id", number_}, {"error", error_}, {"step_ends", step_ends_}, {"steps_complete", std::count(step_arrivals_.begin(), step_arrivals_.end(), workers_)},
            {"operations", operations}};
}

} // namespace sim
