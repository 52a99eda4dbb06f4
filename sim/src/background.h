/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Flows beside the jobs, each at its time.
 */
#pragma once

#include "carrier.h"

namespace sim {

class Background {
  public:
    /* `spec`: "carrier", and "flows": start (ns), from, to, bytes of each, by start. */
    Background(const Json& spec, std::unique_ptr<Carrier> carrier);
    void start();
    bool over() const { return done_ == flows_.size(); }
    /* "flows": start, end (ns; 0: it isn't over), from, to and bytes of each. */
    Json result() const;
    const Carrier& carrier() const { return *carrier_; }

    std::function<void()> on_over;

  private:
    struct Flow {
        uint64_t start, end;
        unsigned from, to;
        uint64_t bytes;
    };
    const std::unique_ptr<Carrier> carrier_;
    std::vector<Flow> flows_;
    size_t next_ = 0, done_ = 0;

    void send_due();
};

} // namespace sim
