/* SPDX-License-Identifier: GPL-2.0-only
 *
 * A switch's policy as the input tells it; gradlane_sim/tables.py makes it of the controller's entries.
 */
#pragma once

#include <nlohmann/json.hpp>

#include "policy.h"

namespace sim {

/* `spec`: "jobs", "ports", "budget_shares", and, where there are any, "job_shares", "control_rates", "dscp_classes" and
 * "sums". */
void read_policy(Policy& policy, const nlohmann::json& spec);

} // namespace sim
