/* SPDX-License-Identifier: GPL-2.0-only */
#include "pfabric_queue.h"

#include <algorithm>

#include "frame.h"

namespace sim {

NS_OBJECT_ENSURE_REGISTERED(PfabricQueue);

ns3::TypeId PfabricQueue::GetTypeId() {
    static ns3::TypeId id = ns3::TypeId("sim::PfabricQueue").SetParent<PortQueue>().AddConstructor<PfabricQueue>();
    return id;
}

bool PfabricQueue::Enqueue(ns3::Ptr<ns3::Packet> packet) {
    uint8_t head[PPP + FramedHead::BYTES] = {0};
    const uint32_t held = packet->CopyData(head, sizeof head) - PPP;
    Waiting arrival = {packet, 0, 0, frame_bytes(packet)};
    if (FramedHead::is(head + PPP, held, Frame::PFABRIC_PORT)) {
        const Frame frame = FramedHead::frame(head + PPP);
        arrival.remaining = frame.remaining;
        /* Acknowledgements are a flow apart. */
        arrival.flow = static_cast<uint64_t>(get16(head + PPP + FramedHead::IPV4 + 2)) << 33 |
                       static_cast<uint64_t>(frame.flow) << 1 | (frame.kind == FrameKind::DATA);
    }
    if (arrival.bytes > capacity_) {
        refused(arrival.bytes);
        return false;
    }
    while (depth_ + arrival.bytes > capacity_) {
        /* The last of those with most left. */
        auto worst = queue_.begin();
        for (auto at = queue_.begin(); at != queue_.end(); ++at)
            if (at->remaining >= worst->remaining) worst = at;
        if (worst == queue_.end() || worst->remaining <= arrival.remaining) {
            refused(arrival.bytes);
            return false;
        }
        refused(worst->bytes);
        left(worst->bytes);
        queue_.erase(worst);
    }
    entered(arrival.bytes);
    queue_.push_back(std::move(arrival));
    return true;
}

std::deque<PfabricQueue::Waiting>::const_iterator PfabricQueue::next() const {
    const auto best = std::min_element(queue_.begin(), queue_.end(),
                                       [](const Waiting& a, const Waiting& b) { return a.remaining < b.remaining; });
    return std::find_if(queue_.begin(), queue_.end(), [best](const Waiting& w) { return w.flow == best->flow; });
}

ns3::Ptr<ns3::Packet> PfabricQueue::Dequeue() {
    if (queue_.empty()) return nullptr;
    const auto at = next();
    const ns3::Ptr<ns3::Packet> packet = at->packet;
    left(at->bytes);
    queue_.erase(at);
    return packet;
}

ns3::Ptr<const ns3::Packet> PfabricQueue::Peek() const { return queue_.empty() ? nullptr : next()->packet; }

} // namespace sim
