/* SPDX-License-Identifier: GPL-2.0-only
 *
 * pFabric (Alizadeh et al., SIGCOMM 2013): packets carry what is left of their flow, switches do the rest; see
 * PfabricQueue. A sender starts with a window of the bandwidth-delay product, slow-starts anew after a timeout, and
 * only probes after several in a row.
 */
#pragma once

#include "frame_carrier.h"

namespace sim {

class PfabricCarrier : public FrameCarrier {
  public:
    PfabricCarrier(Fabric& fabric, const Json& spec, unsigned number);

  protected:
    std::unique_ptr<Flow> make_flow(unsigned from, unsigned to, uint64_t bytes, uint32_t packets) override;
    void begin(Flow& flow) override;
    void at_sender(Flow& flow, const Frame& frame) override;
    void at_receiver(Flow& flow, const Frame& frame) override;
    void timeout(Flow& flow) override;

  private:
    struct PfabricFlow : Flow {
        using Flow::Flow;
        double window = 0, threshold = 0; /* packets */
        unsigned timeouts = 0;            /* in a row */
        uint64_t timed_out = 0;           /* ns: when, last */
    };
    const double most_window_; /* packets */
    const unsigned timeouts_before_probing_;

    void fill(PfabricFlow& flow);
    void rearm(PfabricFlow& flow);
};

} // namespace sim
