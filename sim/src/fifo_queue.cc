/* SPDX-License-Identifier: GPL-2.0-only */
#include "fifo_queue.h"

namespace sim {

NS_OBJECT_ENSURE_REGISTERED(FifoQueue);

ns3::TypeId FifoQueue::GetTypeId() {
    static ns3::TypeId id = ns3::TypeId("sim::FifoQueue").SetParent<PortQueue>().AddConstructor<FifoQueue>();
    return id;
}

bool FifoQueue::Enqueue(ns3::Ptr<ns3::Packet> packet) {
    const uint32_t bytes = frame_bytes(packet);
    if (depth_ + bytes > capacity_) {
        refused(bytes);
        return false;
    }
    mark_if_above(depth_, packet);
    entered(bytes);
    queue_.push_back(packet);
    return true;
}

ns3::Ptr<ns3::Packet> FifoQueue::Dequeue() {
    if (queue_.empty()) return nullptr;
    const ns3::Ptr<ns3::Packet> packet = queue_.front();
    queue_.pop_front();
    left(frame_bytes(packet));
    return packet;
}

} // namespace sim
