/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The queue of a switch that trims: where more than a threshold of data waits, a packet of trimming's data is cut to
 * its header, which goes first, as all of the top class does. Headers have the rest of the buffer. Other packets wait
 * with the data, may be marked, and are dropped if there is no room.
 */
#pragma once

#include "port_queue.h"

namespace sim {

class TrimQueue : public PortQueue {
  public:
    static ns3::TypeId GetTypeId();
    /* `threshold`: bytes of data. */
    void set_threshold(uint64_t threshold) { threshold_ = threshold; }
    bool Enqueue(ns3::Ptr<ns3::Packet> packet) override;
    ns3::Ptr<ns3::Packet> Dequeue() override;
    ns3::Ptr<ns3::Packet> Remove() override { return Dequeue(); }
    ns3::Ptr<const ns3::Packet> Peek() const override;

  private:
    enum { TOP_CLASS = 7 };
    std::deque<ns3::Ptr<ns3::Packet>> headers_, data_;
    uint64_t threshold_ = 0, data_bytes_ = 0;
    bool put(bool first, ns3::Ptr<ns3::Packet> packet);
};

} // namespace sim
