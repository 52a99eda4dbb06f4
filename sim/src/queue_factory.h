/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include <nlohmann/json.hpp>

#include "port_queue.h"

namespace sim {

/* The queue of a switch's port, or of a host's. `spec`: "kind" and what that needs beside; see
 * gradlane_sim/specification.py. `capacity`: bytes of the port's buffer, which a host has without a bound, but in
 * pFabric. */
ns3::Ptr<PortQueue> make_queue(const nlohmann::json& spec, bool host, uint64_t capacity, uint32_t framing);

} // namespace sim
