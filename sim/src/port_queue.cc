/* SPDX-License-Identifier: GPL-2.0-only */
#include "port_queue.h"

#include <algorithm>

#include "ns3/simulator.h"

#include "raw_header.h"

extern "C" {
#include "base/bits.h"
}

namespace sim {

namespace {
constexpr unsigned GRADIENTS = 47400; /* the UDP port of packets that a policy marks */
constexpr uint32_t DECIDING = 20 + 8; /* bytes of IPv4 and UDP */
constexpr uint32_t TAGGED = 20 + 20;  /* bytes of IPv4 and TCP */
} // namespace

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

void PortQueue::change(uint64_t depth) {
    const double now = ns3::Simulator::Now().GetSeconds();
    counts_.byte_seconds += static_cast<double>(depth_) * (now - changed_);
    changed_ = now;
    depth_ = depth;
}

void PortQueue::left(uint32_t bytes) { change(depth_ - bytes); }

void PortQueue::entered(uint32_t bytes) {
    change(depth_ + bytes);
    counts_.enqueued++;
    counts_.bytes += bytes;
    counts_.depth_max = std::max(counts_.depth_max, depth_);
}

void PortQueue::refused(uint32_t bytes) {
    counts_.dropped++;
    counts_.dropped_bytes += bytes;
}

void PortQueue::set_tos(const ns3::Ptr<ns3::Packet>& packet, uint8_t tos) {
    uint8_t head[PPP + 2];
    packet->CopyData(head, sizeof head);
    head[PPP + 1] = tos;
    packet->RemoveAtStart(sizeof head);
    packet->AddHeader(RawHeader(head, sizeof head));
}

void PortQueue::mark_if_above(uint64_t waiting, const ns3::Ptr<ns3::Packet>& packet) {
    if (waiting <= mark_) return;
    uint8_t head[PPP + DECIDING];
    const uint32_t held = packet->CopyData(head, sizeof head);
    const uint8_t* const ip = head + PPP;
    const uint8_t ecn = ip[1] & 3;
    const bool gradient = held == sizeof head && ip[9] == 17 && get16(ip + 22) == GRADIENTS;
    if (ecn == 0 || ecn == 3 || gradient) return;
    counts_.marked++;
    set_tos(packet, ip[1] | 3);
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
        left(size);
        refused(size);
    }
    return true;
}

bool PriorityQueue::Enqueue(ns3::Ptr<ns3::Packet> packet) {
    uint8_t head[PPP + TAGGED] = {0};
    const uint32_t held = packet->CopyData(head, tag ? sizeof head : PPP + 2);
    if (tag) {
        const uint8_t tos = tag(head + PPP, held - PPP);
        if (tos != head[PPP + 1]) set_tos(packet, tos);
        head[PPP + 1] = tos;
    }
    const unsigned queue_class = class_ == UINT8_MAX ? head[PPP + 1] >> 5 : class_;
    const uint32_t bytes = frame_bytes(packet);
    if (!make_room(queue_class, bytes)) {
        refused(bytes);
        return false;
    }
    uint64_t waiting = depth_;
    for (unsigned i = 0; i < queue_class && !mark_by_port_; i++) waiting -= bytes_[i];
    mark_if_above(waiting, packet);
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
    left(bytes);
    return packet;
}

ns3::Ptr<ns3::Packet> PriorityQueue::Remove() { return Dequeue(); }

ns3::Ptr<const ns3::Packet> PriorityQueue::Peek() const {
    for (unsigned i = CLASSES; i--;)
        if (!queues_[i].empty()) return queues_[i].front();
    return nullptr;
}

} // namespace sim
