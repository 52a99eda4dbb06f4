/* SPDX-License-Identifier: GPL-2.0-only */
#include "linux_dctcp.h"

#include <algorithm>

namespace sim {

NS_OBJECT_ENSURE_REGISTERED(LinuxDctcp);

ns3::TypeId LinuxDctcp::GetTypeId() {
    static ns3::TypeId id = ns3::TypeId("sim::LinuxDctcp").SetParent<ns3::TcpDctcp>().AddConstructor<LinuxDctcp>();
    return id;
}

uint32_t LinuxDctcp::GetSsThresh(ns3::Ptr<const ns3::TcpSocketState> state, uint32_t in_flight) {
    return std::max(TcpDctcp::GetSsThresh(state, in_flight), 2 * state->m_segmentSize);
}

} // namespace sim
