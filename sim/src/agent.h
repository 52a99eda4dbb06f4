/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The agent of a host: the engines of its jobs, as core/io/runner.c runs them on sockets. Datagrams gather for as long as the
 * engines are patient; a turn takes in what has come, sends what is due, and sleeps until the next deadline. The host's
 * processor takes no time.
 */
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ns3/event-id.h"

#include "fabric.h"
#include "ledger.h"

extern "C" {
#include "engine/engine.h"
}

namespace sim {

class Agent {
  public:
    struct Member { /* a job's engine at this host */
        uint16_t job, rank;
        gl_engine* engine;
        std::vector<unsigned> hosts; /* of the ranks */
        uint32_t group;              /* the address from which switches take what they sum; 0: none */
        std::function<void(const gl_event&)> on_event;
    };
    Agent(Fabric& fabric, unsigned host, Ledger& ledger);
    ~Agent();
    Agent(const Agent&) = delete;

    gl_port* port() { return port_; }
    /* The agent owns the engine from now on. */
    void add(Member member);
    gl_engine* engine(uint16_t job);
    /* Something was submitted. */
    void wake();
    /* The host is dead: it takes in nothing, and sends nothing. */
    void stop();
    bool stopped() const { return stopped_; }
    uint64_t turns() const { return turns_; }

    /* us of the engines' clock. */
    static uint64_t now();

  private:
    struct Arrival {
        uint16_t job;
        bool congested;
        std::vector<uint8_t> bytes;
    };
    Fabric& fabric_;
    const unsigned host_;
    Ledger& ledger_;
    gl_port* port_;
    std::unique_ptr<gl_batch> batch_;
    std::vector<Member> members_;
    std::vector<Arrival> arrivals_, spare_;
    ns3::EventId next_;
    uint64_t gathered_ = 0, turns_ = 0; /* us: until when arrivals gather */
    bool stopped_ = false;

    void arrive(const uint8_t* datagram, uint32_t bytes, uint8_t tos);
    void turn();
    void schedule(uint64_t at);
    void transmit(Member& member);
};

} // namespace sim
