/* SPDX-License-Identifier: GPL-2.0-only */
#include "frame_carrier.h"

#include <algorithm>
#include <stdexcept>

#include "ns3/simulator.h"

namespace sim {

namespace {

constexpr uint16_t FIRST_WAY = 49152;
constexpr uint16_t WAYS = 16384;

uint32_t full_payload(const Json& spec) {
    const uint32_t mtu = spec.value("mtu", 1500U);
    if (mtu <= FramedHead::BYTES || mtu > 9000) throw std::invalid_argument("mtu must be from 45 to 9000");
    return mtu - FramedHead::BYTES;
}

} // namespace

uint64_t FrameCarrier::now() { return static_cast<uint64_t>(ns3::Simulator::Now().GetNanoSeconds()); }

FrameCarrier::FrameCarrier(Fabric& fabric, const Json& spec, unsigned first_port, unsigned number)
    : rto_(spec.at("rto")), payload_(full_payload(spec)),
      window_(std::max(1U, spec.at("window").get<uint32_t>() / (payload_ + FramedHead::BYTES))), fabric_(fabric),
      port_(static_cast<uint16_t>(first_port + number)), listens_(fabric.hosts()) {
    if (!rto_) throw std::invalid_argument("rto must be positive");
    if (number >= Frame::PORTS) throw std::invalid_argument("too many carriers");
}

void FrameCarrier::listen(unsigned host) {
    if (listens_.at(host)) return;
    listens_[host] = true;
    fabric_.receive(host, port_, [this, host](unsigned, const uint8_t* datagram, uint32_t bytes, uint8_t) {
        if (bytes < Frame::BYTES) return;
        const Frame frame = Frame::read(datagram);
        Flow* const flow = find(frame.flow);
        if (!flow) return;
        if (host == flow->to)
            at_receiver(*flow, frame);
        else
            at_sender(*flow, frame);
    });
}

void FrameCarrier::send(unsigned from, unsigned to, uint64_t bytes, std::function<void()> delivered) {
    const uint64_t packets = (bytes + payload_ - 1) / payload_;
    if (!packets || packets >= UINT32_MAX || from == to)
        throw std::invalid_argument("a message must have bytes, and go to another host");
    listen(from);
    listen(to);
    auto made = make_flow(from, to, bytes, static_cast<uint32_t>(packets));
    Flow& flow = *made;
    flow.number = next_flow_++;
    flow.delivered = std::move(delivered);
    flows_.emplace(flow.number, std::move(made));
    begin(flow);
}

FrameCarrier::Flow* FrameCarrier::find(uint32_t number) {
    const auto found = flows_.find(number);
    return found == flows_.end() ? nullptr : found->second.get();
}

void FrameCarrier::set_timer(Flow& flow, uint64_t at) {
    const uint64_t from = now();
    flow.timer.Cancel();
    flow.timer = ns3::Simulator::Schedule(ns3::NanoSeconds(static_cast<int64_t>(at > from ? at - from : 0)),
                                          [this, number = flow.number] {
                                              if (Flow* const found = find(number)) timeout(*found);
                                          });
}

void FrameCarrier::transmit(unsigned from, unsigned to, const Frame& frame, unsigned queue_class, uint32_t payload) {
    uint8_t bytes[Frame::BYTES];
    frame.write(bytes);
    const uint16_t way = FIRST_WAY + way_;
    way_ = (way_ + 1) % WAYS;
    fabric_.send(from, to, way, port_, static_cast<uint8_t>(queue_class << 5), bytes, sizeof bytes, payload);
}

uint32_t FrameCarrier::remaining(const Flow& flow) const {
    const uint64_t left = static_cast<uint64_t>(flow.sender.unacknowledged()) * payload_;
    return static_cast<uint32_t>(std::min<uint64_t>({left, flow.bytes, UINT32_MAX}));
}

void FrameCarrier::send_next(Flow& flow, unsigned queue_class) {
    const uint32_t before = flow.sender.unsent();
    const uint32_t sequence = flow.sender.take(now());
    counts_.packets++;
    counts_.repeated += before == flow.sender.unsent();
    const uint64_t from = static_cast<uint64_t>(sequence) * payload_;
    const Frame frame = {FrameKind::DATA, flow.number, sequence, remaining(flow)};
    transmit(flow.from, flow.to, frame, queue_class,
             static_cast<uint32_t>(std::min<uint64_t>(payload_, flow.bytes - from)));
}

void FrameCarrier::send_probe(const Flow& flow) {
    transmit(flow.from, flow.to, {FrameKind::PROBE, flow.number, 0, remaining(flow)}, 0, 0);
}

void FrameCarrier::send_to_sender(const Flow& flow, FrameKind kind, uint32_t sequence) {
    transmit(flow.to, flow.from, {kind, flow.number, sequence, 0}, TOP_CLASS, 0);
}

bool FrameCarrier::deliver(Flow& flow, uint32_t sequence) {
    if (!flow.receiver.take(sequence)) return false;
    if (flow.receiver.over()) {
        const auto delivered = std::move(flow.delivered);
        delivered();
    }
    return true;
}

void FrameCarrier::end(Flow& flow) {
    flow.timer.Cancel();
    flows_.erase(flow.number);
}

Json FrameCarrier::result() const {
    return {{"packets", counts_.packets}, {"repeated", counts_.repeated}, {"timeouts", counts_.timeouts},
            {"trimmed", counts_.trimmed}, {"probes", counts_.probes},     {"open", flows_.size()}};
}

} // namespace sim
