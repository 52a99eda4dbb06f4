/* SPDX-License-Identifier: GPL-2.0-only */
#include "background.h"

#include <algorithm>
#include <stdexcept>

#include "ns3/simulator.h"

namespace sim {

Background::Background(const Json& spec, std::unique_ptr<Carrier> carrier) : carrier_(std::move(carrier)) {
    for (const Json& f : spec.at("flows")) flows_.push_back({f.at(0), 0, f.at(1), f.at(2), f.at(3)});
    if (!std::is_sorted(flows_.begin(), flows_.end(), [](const Flow& a, const Flow& b) { return a.start < b.start; }))
        throw std::invalid_argument("background flows must be in the order of their starts");
}

void Background::start() { send_due(); }

/* One event waits at a time, however many flows there are. */
void Background::send_due() {
    const uint64_t now = static_cast<uint64_t>(ns3::Simulator::Now().GetNanoSeconds());
    for (; next_ < flows_.size() && flows_[next_].start <= now; next_++) {
        const Flow& flow = flows_[next_];
        carrier_->send(flow.from, flow.to, flow.bytes, [this, number = next_] {
            flows_[number].end = static_cast<uint64_t>(ns3::Simulator::Now().GetNanoSeconds());
            if (++done_ == flows_.size() && on_over) on_over();
        });
    }
    if (next_ < flows_.size())
        ns3::Simulator::Schedule(ns3::NanoSeconds(static_cast<int64_t>(flows_[next_].start - now)),
                                 &Background::send_due, this);
}

Json Background::result() const {
    Json flows = Json::array();
    for (const Flow& f : flows_) flows.push_back({f.start, f.end, f.from, f.to, f.bytes});
    return flows;
}

} // namespace sim
