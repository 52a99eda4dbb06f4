/* SPDX-License-Identifier: GPL-2.0-only
 *
 * A job whose gradients travel as whole messages by a carrier: to parameter servers and back, from all to all, or in a
 * ring. The hosts' sums take no time, as those of Gradlane's engines do.
 */
#pragma once

#include <array>
#include <map>

#include "carrier.h"
#include "job.h"
#include "ledger.h"

namespace sim {

class MessageJob : public Job {
  public:
    /* `spec`: beside a job's, "algorithm": "direct" (with "servers": those reduce) or "ring". */
    MessageJob(const Json& spec, std::unique_ptr<Carrier> carrier);

    Json result() const override;
    void drop(unsigned host) override;
    std::string waiting() const override;
    const std::vector<MessageTime>& times() const { return times_; }

  protected:
    void submit(unsigned rank, uint32_t step, unsigned tensor) override;

  private:
    /* What is there of a step's tensor. */
    struct Reduction {
        std::vector<bool> submitted;           /* by worker */
        std::vector<unsigned> shards, results; /* that came: to each reducer, to each worker */
        std::vector<std::vector<bool>> hops;   /* of the ring: that came to each worker */
        unsigned complete = 0;                 /* workers */
    };
    const std::unique_ptr<Carrier> carrier_;
    const bool ring_;
    const unsigned reducers_;                                 /* the servers, or all workers */
    std::map<std::pair<uint32_t, unsigned>, Reduction> open_; /* by step and tensor */
    std::map<std::array<unsigned, 3>, unsigned> in_flight_;   /* messages, by step and the ranks from and to */
    std::vector<MessageTime> times_;

    Reduction& find(uint32_t step, unsigned tensor);
    unsigned reducer_rank(unsigned reducer) const { return servers_ ? workers_ + reducer : reducer; }
    uint64_t part_bytes(unsigned tensor, unsigned part, unsigned parts) const;
    /* Nothing is delivered at once. */
    void send(uint32_t step, unsigned from, unsigned to, uint64_t bytes, bool pull, std::function<void()> delivered);
    void take_shard(uint32_t step, unsigned tensor, unsigned reducer);
    void take_result(uint32_t step, unsigned tensor, unsigned worker);
    void take_hop(uint32_t step, unsigned tensor, unsigned worker, unsigned hop);
    void send_hop(uint32_t step, unsigned tensor, unsigned worker, unsigned hop);
    void finish(uint32_t step, unsigned tensor, unsigned worker);
};

} // namespace sim
