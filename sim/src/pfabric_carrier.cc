/* SPDX-License-Identifier: GPL-2.0-only */
#include "pfabric_carrier.h"

#include <algorithm>

namespace sim {

PfabricCarrier::PfabricCarrier(Fabric& fabric, const Json& spec, unsigned number)
    : FrameCarrier(fabric, spec, Frame::PFABRIC_PORT, number),
      most_window_(std::max<double>(window_, spec.value("most_window", 0U) / (payload_ + FramedHead::BYTES))),
      timeouts_before_probing_(spec.value("timeouts_before_probing", 5U)) {}

std::unique_ptr<FrameCarrier::Flow> PfabricCarrier::make_flow(unsigned from, unsigned to, uint64_t bytes,
                                                              uint32_t packets) {
    auto flow = std::make_unique<PfabricFlow>(from, to, bytes, packets);
    flow->window = window_;
    flow->threshold = most_window_;
    return flow;
}

void PfabricCarrier::begin(Flow& flow) { fill(static_cast<PfabricFlow&>(flow)); }

void PfabricCarrier::fill(PfabricFlow& flow) {
    while (flow.sender.has_next() && flow.sender.in_flight() < flow.window) send_next(flow, 0);
    rearm(flow);
}

void PfabricCarrier::rearm(PfabricFlow& flow) {
    const uint64_t oldest = flow.sender.oldest();
    if (oldest != UINT64_MAX && !flow.timer.IsPending()) set_timer(flow, oldest + rto_);
}

void PfabricCarrier::timeout(Flow& f) {
    auto& flow = static_cast<PfabricFlow&>(f);
    if (flow.timeouts >= timeouts_before_probing_) {
        counts_.probes++;
        send_probe(flow);
        set_timer(flow, now() + rto_);
        return;
    }
    /* Packets from before the last timeout belong to that one. */
    const uint64_t oldest = flow.sender.oldest();
    if (flow.sender.expire(now(), rto_) && oldest >= flow.timed_out) {
        counts_.timeouts++;
        flow.timed_out = now();
        flow.threshold = std::max(2.0, flow.window / 2);
        flow.window = 1;
        if (++flow.timeouts >= timeouts_before_probing_) return timeout(flow);
    }
    fill(flow);
}

void PfabricCarrier::at_receiver(Flow& flow, const Frame& frame) {
    if (frame.kind == FrameKind::DATA) {
        deliver(flow, frame.sequence);
        send_to_sender(flow, FrameKind::ACK, frame.sequence);
    } else if (frame.kind == FrameKind::PROBE) {
        send_to_sender(flow, FrameKind::PROBE, 0);
    }
}

void PfabricCarrier::at_sender(Flow& f, const Frame& frame) {
    auto& flow = static_cast<PfabricFlow&>(f);
    if (flow.timeouts >= timeouts_before_probing_) flow.timer.Cancel();
    flow.timeouts = 0;
    if (frame.kind == FrameKind::ACK) {
        flow.sender.acknowledge(frame.sequence);
        flow.window = std::min(most_window_, flow.window + (flow.window < flow.threshold ? 1 : 1 / flow.window));
        if (flow.sender.over()) return end(flow);
    }
    fill(flow);
}

} // namespace sim
