/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The queue of a pFabric switch: a small buffer, in which the packet whose flow has most left gives way, and the flow
 * with least left goes first, by its earliest packet, lest that starve. Packets of others are as if nothing was left of
 * their flow.
 */
#pragma once

#include "port_queue.h"

namespace sim {

class PfabricQueue : public PortQueue {
  public:
    static ns3::TypeId GetTypeId();
    bool Enqueue(ns3::Ptr<ns3::Packet> packet) override;
    ns3::Ptr<ns3::Packet> Dequeue() override;
    ns3::Ptr<ns3::Packet> Remove() override { return Dequeue(); }
    ns3::Ptr<const ns3::Packet> Peek() const override;

  private:
    struct Waiting {
        ns3::Ptr<ns3::Packet> packet;
        uint64_t flow;
        uint32_t remaining, bytes;
    };
    std::deque<Waiting> queue_; /* by arrival: at most some tens, as in the paper's hardware */
    std::deque<Waiting>::const_iterator next() const;
};

} // namespace sim
