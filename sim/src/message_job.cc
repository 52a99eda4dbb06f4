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
    : Job(spec), carrier_(std::move(carrier)), ring_(is_ring(spec)) {
    const Operation all{0, 1, 0};
    if (grouped_) {
        for (const Ranks& ranks : groups_.meeting())
            for (const unsigned from : ranks)
                for (const unsigned to : ranks)
                    if (from != to) carrier_->open(hosts_[from], hosts_[to]);
        return;
    }
    for (unsigned worker = 0; worker < workers_; worker++) {
        if (ring_) {
            if (workers_ > 1) carrier_->open(hosts_[worker], hosts_[(worker + 1) % workers_]);
            continue;
        }
        for (unsigned reducer = 0; reducer < reducers(all); reducer++) {
            if (reducer_rank(all, reducer) == worker) continue;
            carrier_->open(hosts_[worker], hosts_[reducer_rank(all, reducer)]);
            carrier_->open(hosts_[reducer_rank(all, reducer)], hosts_[worker]);
        }
    }
}

MessageJob::Reduction& MessageJob::find(const Operation& op) {
    const auto [at, fresh] = open_.try_emplace(op);
    if (fresh) {
        Reduction& r = at->second;
        r.submitted.resize(size(op));
        r.shards.resize(reducers(op)), r.results.resize(size(op));
        if (ring_) r.hops.assign(size(op), std::vector<bool>(2 * (size(op) - 1)));
    }
    return at->second;
}

uint64_t MessageJob::part_bytes(const Operation& op, unsigned part, unsigned parts) const {
    const uint64_t bytes = tensors_[op.tensor].bytes;
    if (ring_ || shares_.empty()) return bytes * (part + 1) / parts - bytes * part / parts;
    return bytes * shares_[part + 1] / shares_.back() - bytes * shares_[part] / shares_.back();
}

void MessageJob::send(uint32_t number, unsigned from, unsigned to, uint64_t bytes, bool pull,
                      std::function<void()> delivered) {
    if (from == to || !bytes) return delivered();
    const std::array<unsigned, 3> key = {number, from, to};
    in_flight_[key]++;
    carrier_->send(hosts_[from], hosts_[to], bytes, [this, key, start = now(), bytes, pull, delivered] {
        if (!--in_flight_[key]) in_flight_.erase(key);
        times_.push_back({start, now(), static_cast<uint32_t>(bytes), number_, static_cast<uint16_t>(key[1]),
                          static_cast<uint16_t>(key[2]), pull});
        if (!over()) delivered();
    });
}

void MessageJob::submit(unsigned rank, const Operation& op) {
    Reduction& r = find(op);
    const Ranks& ranks = members(op);
    const auto place = std::lower_bound(ranks.begin(), ranks.end(), rank);
    const unsigned worker = static_cast<unsigned>(place - ranks.begin());
    r.submitted[worker] = true;
    if (!ring_) {
        /* Each begins with another, lest all send to one at first. */
        for (unsigned k = 1; k <= reducers(op); k++) {
            const unsigned reducer = (worker + k) % reducers(op);
            send(op.number, rank, reducer_rank(op, reducer), part_bytes(op, reducer, reducers(op)), false,
                 [=, this] { take_shard(op, reducer); });
        }
        return;
    }
    if (size(op) == 1) return finish(op, worker);
    const std::vector<bool> came = r.hops[worker];
    send_hop(op, worker, 0);
    for (unsigned hop = 0; hop < came.size(); hop++)
        if (came[hop]) send_hop(op, worker, hop + 1);
}

void MessageJob::take_shard(const Operation& op, unsigned reducer) {
    if (++find(op).shards[reducer] < size(op)) return;
    for (unsigned k = 1; k <= size(op); k++) {
        const unsigned worker = (reducer + k) % size(op);
        send(op.number, reducer_rank(op, reducer), members(op)[worker], part_bytes(op, reducer, reducers(op)), true,
             [=, this] { take_result(op, worker); });
    }
}

void MessageJob::take_result(const Operation& op, unsigned worker) {
    if (++find(op).results[worker] == reducers(op)) finish(op, worker);
}

/* Hop k of a worker carries the piece that came to it by hop k - 1, with its own share added as long as sums are made.
 */
void MessageJob::send_hop(const Operation& op, unsigned worker, unsigned hop) {
    const unsigned count = size(op);
    if (hop >= 2 * (count - 1)) return;
    const unsigned piece = (worker + 2 * count - hop) % count, next = (worker + 1) % count;
    send(op.number, members(op)[worker], members(op)[next], part_bytes(op, piece, count), hop >= count - 1,
         [=, this] { take_hop(op, next, hop); });
}

void MessageJob::take_hop(const Operation& op, unsigned worker, unsigned hop) {
    Reduction& r = find(op);
    r.hops[worker][hop] = true;
    if (r.submitted[worker]) send_hop(op, worker, hop + 1);
    if (std::find(r.hops[worker].begin(), r.hops[worker].end(), false) == r.hops[worker].end()) finish(op, worker);
}

void MessageJob::finish(const Operation& op, unsigned worker) {
    const bool last = ++find(op).complete == size(op);
    const unsigned rank = members(op)[worker];
    completed(rank, op);
    if (last) open_.erase(op);
}

void MessageJob::drop(unsigned host) {
    for (unsigned rank = 0; rank < hosts_.size(); rank++)
        if (hosts_[rank] == host)
            fail("rank " + std::to_string(rank) + " is dead: host " + std::to_string(host) + " was not heard of");
}

std::string MessageJob::waiting() const {
    if (in_flight_.empty()) return "";
    const auto& [number, from, to] = in_flight_.begin()->first;
    return "rank " + std::to_string(to) + " waits for rank " + std::to_string(from) + (grouped_ ? " in average " : " in step ") +
           std::to_string(number);
}

Json MessageJob::result() const {
    Json found = Job::result();
    found["carrier"] = carrier_->result();
    return found;
}

} // namespace sim
