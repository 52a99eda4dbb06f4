/* SPDX-License-Identifier: GPL-2.0-only
 *
 * A job whose gradients travel as whole messages by a carrier: to parameter servers and back, from all to all (of a
 * group, if it has groups), or in a ring. The hosts' sums take no time, as those of Gradlane's engines do.
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
    void submit(unsigned rank, const Operation& operation) override;

  private:
    /* What is there of an operation. Workers count by their place among its members. */
    struct Reduction {
        std::vector<bool> submitted;           /* by worker */
        std::vector<unsigned> shards, results; /* that came: to each reducer, to each worker */
        std::vector<std::vector<bool>> hops;   /* of the ring: that came to each worker */
        unsigned complete = 0;                 /* workers */
    };
    const std::unique_ptr<Carrier> carrier_;
    const bool ring_;
    std::map<Operation, Reduction> open_;
    std::map<std::array<unsigned, 3>, unsigned> in_flight_; /* messages, by an operation's number and the ranks from and to */
    std::vector<MessageTime> times_;

    Reduction& find(const Operation& op);
    const Ranks& members(const Operation& op) const { return groups_.members(op.group); }
    unsigned size(const Operation& op) const { return static_cast<unsigned>(members(op).size()); }
    /* The servers, or all members. */
    unsigned reducers(const Operation& op) const { return servers_ ? servers_ : size(op); }
    unsigned reducer_rank(const Operation& op, unsigned reducer) const {
        return servers_ ? workers_ + reducer : members(op)[reducer];
    }
    uint64_t part_bytes(const Operation& op, unsigned part, unsigned parts) const;
    /* Nothing is delivered at once. */
    void send(uint32_t number, unsigned from, unsigned to, uint64_t bytes, bool pull, std::function<void()> delivered);
    void take_shard(const Operation& op, unsigned reducer);
    void take_result(const Operation& op, unsigned worker);
    void take_hop(const Operation& op, unsigned worker, unsigned hop);
    void send_hop(const Operation& op, unsigned worker, unsigned hop);
    void finish(const Operation& op, unsigned worker);
};

} // namespace sim
