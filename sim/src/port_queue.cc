/* SPDX-License-Identifier: GPL-2.0-only */
#include "port_queue.h"

#include <algorithm>

namespace sim {

NS_OBJECT_ENSURE_REGISTERED(PortQueue);
NS_OBJECT_ENSURE_REGISTERED(PriorityQueue);

ns3::TypeId PortQueue::GetTypeId() {
    static ns3::TypeId id = ns3::TypeId("sim::PortQueue").SetParent<ns3::Queue<ns3::Packet>>();
    return id;
}

void PortQueue::configure(uint64_t capacity, uint32_t framing) {
    capacity_ = capacity ? capacity : UINT64_MAX;
    framing_ = framing;
}

void PortQueue::entered(uint32_t bytes) {
    depth_ += bytes;
    counts_.enqueued++;
    counts_.bytes += bytes;
    counts_.depth_max = std::max(counts_.depth_max, depth_);
}

void PortQueue::refused(uint32_t bytes) {
    counts_.dropped++;
    counts_.dropped_bytes += bytes;
}

ns3::TypeId PriorityQueue::GetTypeId() {
    static ns3::TypeId id = ns3::TypeId("sim::PriorityQueue").SetParent<PortQueue>().AddConstructor<PriorityQueue>();
    return id;
}

bool PriorityQueue::make_room(unsigned queue_class, uint32_t bytes) {
    if (depth_ + bytes <= capacity_) return true;
    uint64_t lower = 0;
    for (unsigned i = 0; i < queue_class; i++) lower += bytes_[i];
    if (bytes > capacity_ || depth_ - lower + bytes > capacity_) return false;
    for (unsigned i = 0; depth_ + bytes > capacity_;) {
        if (queues_[i].empty()) {
            i++;
            continue;
        }
        const uint32_t size = frame_bytes(queues_[i].back());
        queues_[i].pop_back();
        bytes_[i] -= size;
        depth_ -= size;
        refused(size);
    }
    return true;
}

bool PriorityQueue::Enqueue(ns3::Ptr<ns3::Packet> packet) {
    unsigned queue_class = class_;
    if (queue_class == UINT8_MAX) {
        uint8_t head[PPP + 2];
        packet->CopyData(head, sizeof head);
        queue_class = head[PPP + 1] >> 5;
    }
    const uint32_t bytes = frame_bytes(packet);
    if (!make_room(queue_class, bytes)) {
        refused(bytes);
        return false;
    }
    entered(bytes);
    bytes_[queue_class] += bytes;
    queues_[queue_class].push_back(packet);
    return true;
}

ns3::Ptr<ns3::Packet> PriorityQueue::Dequeue() {
    if (!depth_) return nullptr;
    unsigned i = CLASSES - 1;
    while (queues_[i].empty()) i--;
    const ns3::Ptr<ns3::Packet> packet = queues_[i].front();
    queues_[i].pop_front();
    const uint32_t bytes = frame_bytes(packet);
    bytes_[i] -= bytes;
    depth_ -= bytes;
    return packet;
}

ns3::Ptr<ns3::Packet> PriorityQueue::Remove() { return Dequeue(); }

ns3::Ptr<const ns3::Packet> PriorityQueue::Peek() const {
    for (unsigned i = CLASSES; i--;)
        if (!queues_[i].empty()) return queues_[i].front();
    return nullptr;
}

} // namespace sim
