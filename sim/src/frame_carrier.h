/* SPDX-License-Identifier: GPL-2.0-only
 *
 * A carrier by flows of numbered packets: every message is a flow, which starts at once. Each packet takes a way of its
 * own.
 */
#pragma once

#include <unordered_map>

#include "ns3/event-id.h"

#include "carrier.h"
#include "flow_sender.h"
#include "frame.h"

namespace sim {

class FrameCarrier : public Carrier {
  public:
    /* `first_port`: of the protocol. `spec`: "mtu" (of IPv4), "window" (bytes that start at line rate) and "rto" (ns).
     */
    FrameCarrier(Fabric& fabric, const Json& spec, unsigned first_port, unsigned number);
    void send(unsigned from, unsigned to, uint64_t bytes, std::function<void()> delivered) override;
    Json result() const override;

  protected:
    struct Flow {
        Flow(unsigned from, unsigned to, uint64_t bytes, uint32_t packets)
            : from(from), to(to), bytes(bytes), sender(packets), receiver(packets) {}
        virtual ~Flow() = default;
        uint32_t number = 0;
        unsigned from, to;
        uint64_t bytes;
        FlowSender sender;
        FlowReceiver receiver;
        std::function<void()> delivered;
        ns3::EventId timer;
    };
    const uint64_t rto_;     /* ns */
    const uint32_t payload_; /* bytes of a full packet of data */
    const uint32_t window_;  /* packets */
    Fabric& fabric_;
    struct {
        uint64_t packets = 0, repeated = 0, timeouts = 0, trimmed = 0, probes = 0;
    } counts_;

    static uint64_t now();
    virtual std::unique_ptr<Flow> make_flow(unsigned from, unsigned to, uint64_t bytes, uint32_t packets) = 0;
    virtual void begin(Flow& flow) = 0;
    /* At the flow's sender, and at its receiver. */
    virtual void at_sender(Flow& flow, const Frame& frame) = 0;
    virtual void at_receiver(Flow& flow, const Frame& frame) = 0;
    /* Its timer. */
    virtual void timeout(Flow& flow) = 0;
    void set_timer(Flow& flow, uint64_t at);
    /* A packet of data that the flow has next. */
    void send_next(Flow& flow, unsigned queue_class);
    /* A header with what is left of the flow, and no data. */
    void send_probe(const Flow& flow);
    void send_to_sender(const Flow& flow, FrameKind kind, uint32_t sequence);
    /* Takes in a packet of data: true if it is the first of its number. The flow may be over then. */
    bool deliver(Flow& flow, uint32_t sequence);
    Flow* find(uint32_t number);
    /* The sender knows that all is there. */
    void end(Flow& flow);
    enum { TOP_CLASS = 7 };

  private:
    const uint16_t port_;
    std::unordered_map<uint32_t, std::unique_ptr<Flow>> flows_;
    std::vector<bool> listens_;
    uint32_t next_flow_ = 0;
    uint16_t way_ = 0; /* of the next packet: its source port */

    void listen(unsigned host);
    uint32_t remaining(const Flow& flow) const;
    void transmit(unsigned from, unsigned to, const Frame& frame, unsigned queue_class, uint32_t payload);
};

} // namespace sim
