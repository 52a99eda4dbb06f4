/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Trimming with selective repair, as NDP (Handley et al., SIGCOMM 2017) and Ultra Ethernet have it: a sender starts
 * with a window at line rate; switches cut packets that find no room to their header; see TrimQueue. The receiver says
 * which came and which were cut, and pulls one more for each, no faster than its link takes them, flow by flow in turn.
 */
#pragma once

#include <deque>

#include "frame_carrier.h"

namespace sim {

class TrimmingCarrier : public FrameCarrier {
  public:
    TrimmingCarrier(Fabric& fabric, const Json& spec, unsigned number);

  protected:
    std::unique_ptr<Flow> make_flow(unsigned from, unsigned to, uint64_t bytes, uint32_t packets) override;
    void begin(Flow& flow) override;
    void at_sender(Flow& flow, const Frame& frame) override;
    void at_receiver(Flow& flow, const Frame& frame) override;
    void timeout(Flow& flow) override;

  private:
    struct TrimmingFlow : Flow {
        using Flow::Flow;
        uint32_t owed = 0, pulled = 0; /* at the receiver: pulls to send, and sent so far */
        uint32_t answered = 0;         /* at the sender: pulls */
        bool in_turn = false;
    };
    /* Of a host, whatever the flow. */
    struct Puller {
        std::deque<uint32_t> turns; /* flows that are owed pulls */
        uint64_t next = 0;          /* ns: not before */
        bool scheduled = false;
    };
    const unsigned queue_class_;
    std::vector<Puller> pullers_; /* by host */
    std::vector<uint64_t> pace_;  /* ns from pull to pull, by host */

    void owe(TrimmingFlow& flow);
    void schedule(unsigned host);
    void pull(unsigned host);
    void rearm(TrimmingFlow& flow);
};

} // namespace sim
