/* SPDX-License-Identifier: GPL-2.0-only */
#include "agent.h"

#include <algorithm>
#include <stdexcept>

#include "ns3/simulator.h"

extern "C" {
#include "base/bits.h"
}

namespace sim {

namespace {

constexpr uint64_t EPOCH = 1'000'000; /* us: an engine's clock never begins with 0 */
constexpr uint16_t UDP_PORT = 47400;
constexpr uint8_t CE = 3;
constexpr uint64_t MOST_SLEEP = 3'600'000'000; /* us */

} // namespace

uint64_t Agent::now() { return EPOCH + static_cast<uint64_t>(ns3::Simulator::Now().GetNanoSeconds()) / 1000; }

Agent::Agent(Fabric& fabric, unsigned host, Ledger& ledger)
    : fabric_(fabric), host_(host), ledger_(ledger), port_(gl_port_new(0)), batch_(std::make_unique<gl_batch>()) {
    if (!port_) throw std::bad_alloc();
    fabric.receive(host, UDP_PORT, [this](unsigned, const uint8_t* datagram, uint32_t bytes, uint8_t tos) { arrive(datagram, bytes, tos); });
}

Agent::~Agent() {
    for (Member& member : members_) gl_engine_free(member.engine);
    gl_port_free(port_);
}

void Agent::add(Member member) { members_.push_back(std::move(member)); }

gl_engine* Agent::engine(uint16_t job) {
    for (Member& member : members_)
        if (member.job == job) return member.engine;
    return nullptr;
}

void Agent::stop() {
    stopped_ = true;
    next_.Cancel();
    arrivals_.clear();
}

void Agent::wake() { schedule(now()); }

void Agent::schedule(uint64_t at) {
    const uint64_t now_ns = static_cast<uint64_t>(ns3::Simulator::Now().GetNanoSeconds());
    const uint64_t at_ns = (std::max(at, EPOCH) - EPOCH) * 1000;
    const int64_t wait = at_ns > now_ns ? static_cast<int64_t>(at_ns - now_ns) : 0;
    if (next_.IsPending()) {
        if (static_cast<int64_t>(next_.GetTs()) <= static_cast<int64_t>(now_ns) + wait) return;
        next_.Cancel();
    }
    next_ = ns3::Simulator::Schedule(ns3::NanoSeconds(wait), &Agent::turn, this);
}

void Agent::arrive(const uint8_t* datagram, uint32_t bytes, uint8_t tos) {
    if (stopped_ || bytes < GL_HEADER) return;
    ledger_.delivered(datagram, bytes, host_);
    if (spare_.empty()) {
        arrivals_.emplace_back();
    } else {
        arrivals_.push_back(std::move(spare_.back()));
        spare_.pop_back();
    }
    Arrival& arrival = arrivals_.back();
    arrival.job = get16(datagram + GL_AT_JOB);
    arrival.congested = (tos & 3) == CE;
    arrival.bytes.assign(datagram, datagram + bytes);
    schedule(std::max(now(), gathered_));
}

void Agent::transmit(Member& member) {
    gl_batch& b = *batch_;
    uint8_t datagram[GL_BATCH_BYTES];
    while (gl_transmit(member.engine, &b, now())) {
        int piece = 0;
        for (unsigned k = 0; k < b.datagrams; k++) {
            uint32_t bytes = 0;
            for (unsigned i = 0; i < b.pieces[k]; i++, piece++) {
                const iovec& v = b.iov[piece];
                std::copy_n(static_cast<const uint8_t*>(v.iov_base), v.iov_len, datagram + bytes);
                bytes += static_cast<uint32_t>(v.iov_len);
            }
            const bool summed = b.to == member.hosts.size() + 1 && member.group;
            if (b.to >= member.hosts.size() && !summed) throw std::logic_error("a datagram to an aggregator's group: not simulated");
            const uint64_t ns = static_cast<uint64_t>(ns3::Simulator::Now().GetNanoSeconds());
            const uint32_t to = summed ? member.group : Fabric::address(member.hosts[b.to]);
            ledger_.sent(datagram, bytes, member.rank, b.to, ns);
            fabric_.send_to(host_, to, UDP_PORT, UDP_PORT, b.tos[k], datagram, bytes);
        }
    }
}

void Agent::turn() {
    if (stopped_) return;
    turns_++;
    const uint64_t at = now();
    const bool received = !arrivals_.empty();
    for (Arrival& arrival : arrivals_) {
        gl_engine* const to = engine(arrival.job);
        if (to) gl_receive(to, arrival.bytes.data(), static_cast<uint32_t>(arrival.bytes.size()), arrival.congested, at);
        spare_.push_back(std::move(arrival));
    }
    arrivals_.clear();
    /* What an event submits may be sent in the same turn. */
    for (bool more = true; more;) {
        more = false;
        for (Member& member : members_) transmit(member);
        for (Member& member : members_) {
            while (gl_event* event = gl_next_event(member.engine)) {
                member.on_event(*event);
                gl_event_free(event);
                more = true;
            }
        }
    }
    uint64_t deadline = UINT64_MAX, patience = UINT64_MAX;
    for (Member& member : members_) {
        deadline = std::min(deadline, gl_deadline(member.engine, at));
        patience = std::min(patience, gl_patience(member.engine, at));
    }
    if (received && patience != UINT64_MAX) gathered_ = at + patience;
    if (deadline != UINT64_MAX) schedule(std::max(at + 1, std::min(deadline, at + MOST_SLEEP)));
}

} // namespace sim
