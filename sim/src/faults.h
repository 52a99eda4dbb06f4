/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Hosts that stop, switches that die, links that go down and up. The controller and the control connections' heartbeats are
 * not simulated; what they do comes when it would.
 */
#pragma once

#include <functional>
#include <vector>

#include "fabric.h"

namespace sim {

class Faults {
  public:
    /* `spec`: a list of {"kind": "host", "host", "at", "named_after"}, {"kind": "switch", "switch", "at"}, with "back" if it comes
     * back then, empty, and {"kind": "link", "a", "b", "at", "up"}, in ns; the latter two with "known_after" if it is not the usual
     * time. */
    Faults(Fabric& fabric, const Json& spec);
    Faults(const Faults&) = delete;

    std::function<void(unsigned host)> on_stop;   /* it is dead from now on */
    std::function<void(unsigned node)> on_restart; /* a switch has forgotten everything */
    std::function<void(unsigned host)> on_silent; /* the others have found out that nothing comes of it */

  private:
    Fabric& fabric_;
    std::vector<int64_t> cut_off_; /* [host] since when it is not connected to most hosts, ns; -1: it is */

    void add(const Json& fault);
    void change_links(const std::vector<std::pair<unsigned, unsigned>>& links, bool up, int64_t known_after);
    void look();
};

} // namespace sim
