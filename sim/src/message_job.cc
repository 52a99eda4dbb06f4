/* SPDX-License-Identifier: GPL-2.0-only */
#include "message_job.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "ns3/simulator.h"

namespace sim {

namespace {

uint64_t now() { return static_cast<uint64_t>(ns3::Simulator::Now().GetNanoSeconds()); }

bool is_ring(const Json& spec) {
    const std::string algorithm = spec.at("algorithm");
    if (algorithm != "direct" && algorithm != "ring" && algorithm != "grid")
        throw std::invalid_argument("algorithm \"" + algorithm + "\": over this carrier it must be direct, ring or grid");
    if (algorithm != "direct" && spec.value("servers", 0U)) throw std::invalid_argument("a " + algorithm + " has no servers");
    return algorithm == "ring";
}

} // namespace

MessageJob::MessageJob(const Json& spec, std::unique_ptr<Carrier> carrier)
    : Job(spec), carrier_(std::move(carrier)), ring_(is_ring(spec)) {
    const Operation all{0, 1, 0};
    if (spec.at("algorithm") == "grid") {
        open_grid(spec.at("rows"));
        return;
    }
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
        for (unsigned part = 0; part < parts(all); part++) {
            if (owner(all, part) == worker) continue;
            carrier_->open(hosts_[worker], hosts_[owner(all, part)]);
            carrier_->open(hosts_[owner(all, part)], hosts_[worker]);
        }
    }
}

void MessageJob::open_grid(const Json& spec) {
    if (grouped_) throw std::invalid_argument("over this carrier a grid is of all workers, and not of groups");
    for (const Json& ranks : spec) {
        const unsigned start = static_cast<unsigned>(places_.size());
        for (const unsigned rank : ranks) places_.push_back(static_cast<uint16_t>(rank));
        rows_.push_back({start, static_cast<unsigned>(places_.size())});
        if (ranks.empty()) throw std::invalid_argument("a row of a grid has no rank");
    }
    Ranks sorted = places_;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != groups_.members(0)) throw std::invalid_argument("the rows of a grid must have each worker once");
    const Operation all{0, 1, 0};
    std::set<std::array<unsigned, 2>> pairs;
    for (unsigned index = 0; index < rows(); index++)
        for (unsigned part = 0; part < workers_; part++) {
            const unsigned by = delegate(all, index, part);
            pairs.insert({by, owner(all, part)}), pairs.insert({owner(all, part), by});
            for (unsigned place = rows_[index].start; place < rows_[index].end; place++)
                pairs.insert({by, places_[place]}), pairs.insert({places_[place], by});
        }
    for (const auto& [from, to] : pairs)
        if (from != to) carrier_->open(hosts_[from], hosts_[to]);
}

unsigned MessageJob::row_of(unsigned place) const {
    unsigned found = 0;
    while (found + 1 < rows_.size() && place >= rows_[found].end) found++;
    return found;
}

/* As gl_grid's: parts that other rows own fall to a row's members by turns, from the one behind the row on. */
unsigned MessageJob::delegate(const Operation& op, unsigned index, unsigned part) const {
    const Row its = row(op, index);
    if (servers_ || (part >= its.start && part < its.end)) return owner(op, part);
    return members(op)[its.start + (part + size(op) - its.end) % size(op) % its.length()];
}

MessageJob::Reduction& MessageJob::find(const Operation& op) {
    const auto [at, fresh] = open_.try_emplace(op);
    if (fresh) {
        Reduction& r = at->second;
        r.submitted.resize(size(op));
        r.shares.resize(rows() * parts(op)), r.sums.resize(parts(op)), r.results.resize(size(op));
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
    const auto place = std::find(ranks.begin(), ranks.end(), rank);
    const unsigned worker = static_cast<unsigned>(place - ranks.begin());
    r.submitted[worker] = true;
    if (!ring_) {
        /* Each begins with another, lest all send to one at first. */
        const unsigned row = row_of(worker);
        for (unsigned k = 1; k <= parts(op); k++) {
            const unsigned part = (worker + k) % parts(op);
            send(op.number, rank, delegate(op, row, part), part_bytes(op, part, parts(op)), false,
                 [=, this] { take_share(op, row, part); });
        }
        return;
    }
    if (size(op) == 1) return finish(op, worker);
    const std::vector<bool> came = r.hops[worker];
    send_hop(op, worker, 0);
    for (unsigned hop = 0; hop < came.size(); hop++)
        if (came[hop]) send_hop(op, worker, hop + 1);
}

void MessageJob::take_share(const Operation& op, unsigned row, unsigned part) {
    if (++find(op).shares[row * parts(op) + part] < this->row(op, row).length()) return;
    send(op.number, delegate(op, row, part), owner(op, part), part_bytes(op, part, parts(op)), false,
         [=, this] { take_sum(op, part); });
}

void MessageJob::take_sum(const Operation& op, unsigned part) {
    if (++find(op).sums[part] < rows()) return;
    const unsigned own = row_of(part);
    for (unsigned k = 1; k <= rows(); k++) {
        const unsigned row = (own + k) % rows();
        send(op.number, owner(op, part), delegate(op, row, part), part_bytes(op, part, parts(op)), true,
             [=, this] { hand_on(op, row, part); });
    }
}

void MessageJob::hand_on(const Operation& op, unsigned row, unsigned part) {
    const Row its = this->row(op, row);
    for (unsigned k = 1; k <= its.length(); k++) {
        const unsigned worker = its.start + (part + k) % its.length();
        send(op.number, delegate(op, row, part), members(op)[worker], part_bytes(op, part, parts(op)), true,
             [=, this] { take_result(op, worker); });
    }
}

void MessageJob::take_result(const Operation& op, unsigned worker) {
    if (++find(op).results[worker] == parts(op)) finish(op, worker);
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
