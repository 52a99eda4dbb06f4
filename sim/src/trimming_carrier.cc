/* SPDX-License-Identifier: GPL-2.0-only */
#include "trimming_carrier.h"

#include <algorithm>

#include "ns3/simulator.h"

namespace sim {

TrimmingCarrier::TrimmingCarrier(Fabric& fabric, const Json& spec, unsigned number)
    : FrameCarrier(fabric, spec, Frame::TRIMMING_PORT, number), queue_class_(spec.value("class", 0U)),
      pullers_(fabric.hosts()) {
    const uint64_t bits = 8 * static_cast<uint64_t>(payload_ + FramedHead::BYTES + fabric.framing());
    for (unsigned host = 0; host < fabric.hosts(); host++)
        pace_.push_back(bits * 1'000'000'000 / fabric.ports(host)[0].rate);
}

std::unique_ptr<FrameCarrier::Flow> TrimmingCarrier::make_flow(unsigned from, unsigned to, uint64_t bytes,
                                                               uint32_t packets) {
    return std::make_unique<TrimmingFlow>(from, to, bytes, packets);
}

void TrimmingCarrier::begin(Flow& flow) {
    for (uint32_t i = 0; i < window_ && flow.sender.has_next(); i++) send_next(flow, queue_class_);
    rearm(static_cast<TrimmingFlow&>(flow));
}

/* A flow that is not over always has a timer: it may be that all was cut, and the pulls that were to follow got lost.
 */
void TrimmingCarrier::rearm(TrimmingFlow& flow) {
    const uint64_t oldest = flow.sender.oldest();
    if (!flow.timer.IsPending()) set_timer(flow, (oldest == UINT64_MAX ? now() : oldest) + rto_);
}

/* What was neither acknowledged nor cut got lost without a trace: it is sent again unasked, as nobody would pull it. */
void TrimmingCarrier::timeout(Flow& flow) {
    const unsigned lost = flow.sender.expire(now(), rto_);
    counts_.timeouts += lost != 0;
    const unsigned due = std::max(lost, flow.sender.in_flight() ? 0U : 1U);
    for (unsigned i = 0; i < due && flow.sender.has_next(); i++) send_next(flow, queue_class_);
    rearm(static_cast<TrimmingFlow&>(flow));
}

void TrimmingCarrier::owe(TrimmingFlow& flow) {
    if (flow.receiver.over()) return;
    flow.owed++;
    if (flow.in_turn) return;
    flow.in_turn = true;
    pullers_[flow.to].turns.push_back(flow.number);
    schedule(flow.to);
}

void TrimmingCarrier::schedule(unsigned host) {
    Puller& puller = pullers_[host];
    if (puller.scheduled) return;
    puller.scheduled = true;
    const uint64_t at = now();
    ns3::Simulator::Schedule(ns3::NanoSeconds(static_cast<int64_t>(puller.next > at ? puller.next - at : 0)),
                             [this, host] { pull(host); });
}

void TrimmingCarrier::pull(unsigned host) {
    Puller& puller = pullers_[host];
    puller.scheduled = false;
    while (!puller.turns.empty()) {
        const uint32_t number = puller.turns.front();
        puller.turns.pop_front();
        auto* const flow = static_cast<TrimmingFlow*>(find(number));
        if (!flow) continue;
        flow->in_turn = false;
        if (flow->receiver.over() || !flow->owed) continue;
        flow->owed--;
        flow->pulled++;
        send_to_sender(*flow, FrameKind::PULL, flow->pulled);
        puller.next = now() + pace_[host];
        if (flow->owed) {
            flow->in_turn = true;
            puller.turns.push_back(number);
        }
        break;
    }
    if (!puller.turns.empty()) schedule(host);
}

void TrimmingCarrier::at_receiver(Flow& f, const Frame& frame) {
    auto& flow = static_cast<TrimmingFlow&>(f);
    if (frame.kind == FrameKind::DATA) {
        const bool first = deliver(flow, frame.sequence);
        send_to_sender(flow, FrameKind::ACK, frame.sequence);
        if (first) owe(flow);
    } else if (frame.kind == FrameKind::TRIMMED) {
        counts_.trimmed++;
        send_to_sender(flow, FrameKind::NACK, frame.sequence);
        owe(flow);
    }
}

void TrimmingCarrier::at_sender(Flow& f, const Frame& frame) {
    auto& flow = static_cast<TrimmingFlow&>(f);
    if (frame.kind == FrameKind::ACK) {
        flow.sender.acknowledge(frame.sequence);
        if (flow.sender.over()) return end(flow);
    } else if (frame.kind == FrameKind::NACK) {
        flow.sender.lose(frame.sequence);
    } else if (frame.kind == FrameKind::PULL && frame.sequence > flow.answered) {
        /* Pulls that got lost are made good by the next. */
        const uint32_t more = frame.sequence - flow.answered;
        flow.answered = frame.sequence;
        for (uint32_t i = 0; i < more && flow.sender.has_next(); i++) send_next(flow, queue_class_);
    }
    rearm(flow);
}

} // namespace sim
