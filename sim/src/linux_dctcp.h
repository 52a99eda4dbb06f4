/* SPDX-License-Identifier: GPL-2.0-only
 *
 * DCTCP with the least window that Linux gives it, two segments. That of ns-3 3.44 halves on, below one; and once all is
 * acknowledged no timer runs, so a connection with such a window never sends again.
 */
#pragma once

#include "ns3/tcp-dctcp.h"

namespace sim {

class LinuxDctcp : public ns3::TcpDctcp {
  public:
    static ns3::TypeId GetTypeId();
    uint32_t GetSsThresh(ns3::Ptr<const ns3::TcpSocketState> state, uint32_t in_flight) override;
    ns3::Ptr<ns3::TcpCongestionOps> Fork() override { return ns3::CopyObject<LinuxDctcp>(this); }
};

} // namespace sim
