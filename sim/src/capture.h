/* SPDX-License-Identifier: GPL-2.0-only
 *
 * A capture of one port, for Wireshark: what it sends and receives, behind PPP's two bytes.
 */
#pragma once

#include "fabric.h"

namespace sim {

/* `spec`: "node", "port" (from 1 on), "file". */
void capture(Fabric& fabric, const Json& spec);

} // namespace sim
