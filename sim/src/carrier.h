/* SPDX-License-Identifier: GPL-2.0-only
 *
 * What carries messages from host to host, whatever they mean: the rivals of Gradlane's engines.
 */
#pragma once

#include <functional>
#include <memory>

#include "fabric.h"

namespace sim {

class Carrier {
  public:
    virtual ~Carrier() = default;
    /* Two hosts are going to exchange messages in this direction. */
    virtual void open(unsigned from, unsigned to) { (void)from, (void)to; }
    /* `delivered`: all of it is at the receiver. */
    virtual void send(unsigned from, unsigned to, uint64_t bytes, std::function<void()> delivered) = 0;
    /* Counts, for a person. */
    virtual Json result() const = 0;
};

/* `spec`: "kind" ("tcp", "pfabric" or "trimming") and what that needs beside; see gradlane_sim/specification.py.
 * `number`: another one for each carrier of a simulation. */
std::unique_ptr<Carrier> make_carrier(Fabric& fabric, const Json& spec, unsigned number);

} // namespace sim
