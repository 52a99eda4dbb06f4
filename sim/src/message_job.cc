/* SPDX-License-Identifier: GPL-2.0-only */
#include "message_job.h"

#include <algorithm>
#include <stdexcept>

#include "ns3/simulator.h"

namespace sim {

namespace {

uint64_t now() { return static_cast<uint64_t>(ns3::Simulator::Now().GetNanoSeconds()); }

bool is_ring(const Json& spec) {
    const std::string algorithm = spec.at("algorithm");
    if (algorithm != "direct" && algorithm != "ring")
        throw std::invalid_argument("algorithm \"" + algorithm + "\": over this carrier it must be direct or ring");
    if (algorithm == "ring" && spec.value("servers", 0U)) throw std::invalid_argument("a ring has no servers");
    return algorithm == "ring";
}

} // namespace

MessageJob::MessageJob(const Json& spec, std::unique_ptr<Carrier> carrier)
    : Job(spec), carrier_(std::move(carrier)), ring_(is_ring(spec)), reducers_(servers_ ? servers_ : workers_) {
    for (unsigned worker = 0; worker < workers_; worker++) {
        if (ring_) {
            if (workers_ > 1) carrier_->open(hosts_[worker], hosts_[(worker + 1) % workers_]);
            continue;
        }
        for (unsigned reducer = 0; reducer < reducers_; reducer++) {
            if (reducer_rank(reducer) == worker) continue;
            carrier_->open(hosts_[worker], hosts_[reducer_rank(reducer)]);
            carrier_->open(hosts_[reducer_rank(reducer)], hosts_[worker]);
        }
    }
}

MessageJob::Reduction& MessageJob::find(uint32_t step, unsigned tensor) {
    const auto [at, fresh] = open_.try_emplace({step, tensor});
    if (fresh) {
        Reduction& r = at->second;
        r.submitted.resize(workers_);
        r.shards.resize(reducers_), r.results.resize(workers_);
        if (ring_) r.hops.assign(workers_, std::vector<bool>(2 * (workers_ - 1)));
    }
    return at->second;
}

uint64_t MessageJob::part_bytes(unsigned tensor, unsigned part, unsigned parts) const {
    const uint64_t bytes = tensors_[tensor].bytes;
    return bytes * (part + 1) / parts - bytes * part / parts;
}

void MessageJob::send(uint32_t step, unsigned from, unsigned to, uint64_t bytes, bool pull,
                      std::function<void()> delivered) {
    if (from == to || !bytes) return delivered();
    const std::array<unsigned, 3> key = {step, from, to};
    in_flight_[key]++;
    carrier_->send(hosts_[from], hosts_[to], bytes, [this, key, start = now(), bytes, pull, delivered] {
        if (!--in_flight_[key]) in_flight_.erase(key);
        times_.push_back({start, now(), static_cast<uint32_t>(bytes), number_, static_cast<uint16_t>(key[1]),
                          static_cast<uint16_t>(key[2]), pull});
        if (!over()) delivered();
    });
}

void MessageJob::submit(unsigned rank, uint32_t step, unsigned tensor) {
    Reduction& r = find(step, tensor);
    r.submitted[rank] = true;
    if (!ring_) {
        /* Each begins with another, lest all send to one at first. */
        for (unsigned k = 1; k <= reducers_; k++) {
            const unsigned reducer = (rank + k) % reducers_;
            send(step, rank, reducer_rank(reducer), part_bytes(tensor, reducer, reducers_), false,
                 [=, this] { take_shard(step, tensor, reducer); });
        }
        return;
    }
    if (workers_ == 1) return finish(step, tensor, rank);
    const std::vector<bool> came = r.hops[rank];
    send_hop(step, tensor, rank, 0);
    for (unsigned hop = 0; hop < came.size(); hop++)
        if (came[hop]) send_hop(step, tensor, rank, hop + 1);
}

void MessageJob::take_shard(uint32_t step, unsigned tensor, unsigned reducer) {
    if (++find(step, tensor).shards[reducer] < workers_) return;
    for (unsigned k = 1; k <= workers_; k++) {
        const unsigned worker = (reducer + k) % workers_;
        send(step, reducer_rank(reducer), worker, part_bytes(tensor, reducer, reducers_), true,
             [=, this] { take_result(step, tensor, worker); });
    }
}

void MessageJob::take_result(uint32_t step, unsigned tensor, unsigned worker) {
    if (++find(step, tensor).results[worker] == reducers_) finish(step, tensor, worker);
}

/* Hop k of a worker carries the piece that came to it by hop k - 1, with its own share added as long as sums are made.
 */
void MessageJob::send_hop(uint32_t step, unsigned tensor, unsigned worker, unsigned hop) {
    if (hop >= 2 * (workers_ - 1)) return;
    const unsigned piece = (worker + 2 * workers_ - hop) % workers_, next = (worker + 1) % workers_;
    send(step, worker, next, part_bytes(tensor, piece, workers_), hop >= workers_ - 1,
         [=, this] { take_hop(step, tensor, next, hop); });
}

void MessageJob::take_hop(uint32_t step, unsigned tensor, unsigned worker, unsigned hop) {
    Reduction& r = find(step, tensor);
    r.hops[worker][hop] = true;
    if (r.submitted[worker]) send_hop(step, tensor, worker, hop + 1);
    if (std::find(r.hops[worker].begin(), r.hops[worker].end(), false) == r.hops[worker].end())
        finish(step, tensor, worker);
}

void MessageJob::finish(uint32_t step, unsigned tensor, unsigned worker) {
    const bool last = ++find(step, tensor).complete == workers_;
    completed(worker, step, tensor);
    if (last) open_.erase({step, tensor});
}

void MessageJob::drop(unsigned host) {
    for (unsigned rank = 0; rank < hosts_.size(); rank++)
        if (hosts_[rank] == host)
            fail("rank " + std::to_string(rank) + " is dead: host " + std::to_string(host) + " was not heard of");
}

std::string MessageJob::waiting() const {
    if (in_flight_.empty()) return "";
    const auto& [step, from, to] = in_flight_.begin()->first;
    return "rank " + std::to_string(to) + " waits for rank " + std::to_string(from) + " in step " +
           std::to_string(step);
}

Json MessageJob::result() const {
    Json found = Job::result();
    found["carrier"] = carrier_->result();
    return found;
}

} // namespace sim
