/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The eight strict-priority queues of a switch's port, which share a byte buffer. As gradlane-switch's: a full buffer drops
 * the packet that arrives, unless packets of lower classes wait; then the tail of the lowest class goes.
 */
#pragma once

#include <array>
#include <deque>
#include <functional>

#include "ns3/packet.h"
#include "ns3/queue.h"

namespace sim {

/* What a queue of a port counts, whatever its discipline. */
struct QueueCounts {
    uint64_t enqueued = 0, bytes = 0; /* packets; bytes of frames */
    uint64_t dropped = 0, dropped_bytes = 0;
    uint64_t marked = 0, trimmed = 0;
    uint64_t depth_max = 0; /* bytes */
    double byte_seconds = 0; /* the depth, summed over time */
};

/* What every discipline has. Packets begin with their IPv4 header behind the two bytes of PPP. */
class PortQueue : public ns3::Queue<ns3::Packet> {
  public:
    static ns3::TypeId GetTypeId();
    /* `capacity`: bytes; 0: no bound. `framing`: bytes of a frame on the wire beside its IPv4 packet. */
    void configure(uint64_t capacity, uint32_t framing);
    /* ECN-capable packets that are not of a job that a policy marks are marked where more than this waits. Bytes. */
    void mark_above(uint64_t threshold) { mark_ = threshold; }
    /* Rewrites the TOS of what a host sends: `packet` begins with its IPv4 header. */
    std::function<uint8_t(const uint8_t* packet, uint32_t held)> tag;
    /* Of the packets that enter from now on; until then, and at hosts, it is what their TOS begins with. */
    void set_class(uint8_t queue_class) { class_ = queue_class; }
    const QueueCounts& counts() const { return counts_; }
    uint64_t depth() const { return depth_; }

  protected:
    uint64_t capacity_ = 0, depth_ = 0, mark_ = UINT64_MAX;
    uint32_t framing_ = 0;
    uint8_t class_ = UINT8_MAX;
    QueueCounts counts_;

    uint32_t frame_bytes(const ns3::Ptr<const ns3::Packet>& packet) const { return packet->GetSize() - PPP + framing_; }
    void entered(uint32_t bytes);
    void left(uint32_t bytes);
    /* What is dropped: as it arrives, or having waited. */
    void refused(uint32_t bytes);
    /* Marks it if `waiting` is above the threshold. */
    void mark_if_above(uint64_t waiting, const ns3::Ptr<ns3::Packet>& packet);
    static void set_tos(const ns3::Ptr<ns3::Packet>& packet, uint8_t tos);
    static constexpr uint32_t PPP = 2; /* bytes */

  private:
    double changed_ = 0; /* s: when the depth did */
    void change(uint64_t depth);
};

class PriorityQueue : public PortQueue {
  public:
    /* What waits for marking: all of the port, or what goes before the packet. */
    void mark_by_port(bool by_port) { mark_by_port_ = by_port; }
    static ns3::TypeId GetTypeId();
    bool Enqueue(ns3::Ptr<ns3::Packet> packet) override;
    ns3::Ptr<ns3::Packet> Dequeue() override;
    ns3::Ptr<ns3::Packet> Remove() override;
    ns3::Ptr<const ns3::Packet> Peek() const override;

  private:
    enum { CLASSES = 8 };
    std::array<std::deque<ns3::Ptr<ns3::Packet>>, CLASSES> queues_;
    std::array<uint64_t, CLASSES> bytes_{};
    bool mark_by_port_ = false;
    bool make_room(unsigned queue_class, uint32_t bytes);
};

} // namespace sim
