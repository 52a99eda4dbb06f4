/* SPDX-License-Identifier: GPL-2.0-only
 *
 * One queue for all, first in, first out, that marks ECN-capable packets as DCTCP's switches do: if more than a
 * threshold waits as the packet arrives. A full buffer drops what arrives.
 */
#pragma once

#include "port_queue.h"

namespace sim {

class FifoQueue : public PortQueue {
  public:
    static ns3::TypeId GetTypeId();
    bool Enqueue(ns3::Ptr<ns3::Packet> packet) override;
    ns3::Ptr<ns3::Packet> Dequeue() override;
    ns3::Ptr<ns3::Packet> Remove() override { return Dequeue(); }
    ns3::Ptr<const ns3::Packet> Peek() const override { return queue_.empty() ? nullptr : queue_.front(); }

  private:
    std::deque<ns3::Ptr<ns3::Packet>> queue_;
};

} // namespace sim
