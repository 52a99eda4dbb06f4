/* SPDX-License-Identifier: GPL-2.0-only
 *
 * A job whose gradients travel as whole messages by a carrier: to parameter servers and back, from all to all (of a
 * group, if it has groups), in a ring, or in a grid. The hosts' sums take no time, as those of Gradlane's engines do.
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
    /* `spec`: beside a job's, "algorithm": "direct" (with "servers": those reduce), "ring", or "grid", whose "rows" are of
     * ranks. */
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
        std::vector<bool> submitted;         /* by worker */
        std::vector<unsigned> shares, sums;  /* of each row, of each part of a tensor, that came; of rows, to each owner */
        std::vector<unsigned> results;       /* that came to each worker */
        std::vector<std::vector<bool>> hops; /* of the ring: that came to each worker */
        unsigned complete = 0;               /* workers */
    };
    /* Places, from `start` to before `end`. What all reduce directly is a grid of one row. */
    struct Row {
        unsigned start, end;
        unsigned length() const { return end - start; }
    };
    const std::unique_ptr<Carrier> carrier_;
    const bool ring_;
    std::vector<Row> rows_; /* of a grid */
    Ranks places_;          /* of a grid: the ranks, row by row */
    std::map<Operation, Reduction> open_;
    std::map<std::array<unsigned, 3>, unsigned> in_flight_; /* messages, by an operation's number and the ranks from and to */
    std::vector<MessageTime> times_;

    Reduction& find(const Operation& op);
    const Ranks& members(const Operation& op) const { return rows_.empty() ? groups_.members(op.group) : places_; }
    unsigned size(const Operation& op) const { return static_cast<unsigned>(members(op).size()); }
    /* A tensor's parts: each is owned by a server, or by the member at its place. */
    unsigned parts(const Operation& op) const { return servers_ ? servers_ : size(op); }
    unsigned owner(const Operation& op, unsigned part) const { return servers_ ? workers_ + part : members(op)[part]; }
    unsigned rows() const { return rows_.empty() ? 1 : static_cast<unsigned>(rows_.size()); }
    Row row(const Operation& op, unsigned index) const { return rows_.empty() ? Row{0, size(op)} : rows_[index]; }
    unsigned row_of(unsigned place) const;
    /* The rank that adds up what a row contributes to a part, and hands the result on to it. */
    unsigned delegate(const Operation& op, unsigned row, unsigned part) const;
    void open_grid(const Json& spec);
    uint64_t part_bytes(const Operation& op, unsigned part, unsigned parts) const;
    /* Nothing is delivered at once. */
    void send(uint32_t number, unsigned from, unsigned to, uint64_t bytes, bool pull, std::function<void()> delivered);
    void take_share(const Operation& op, unsigned row, unsigned part);
    void take_sum(const Operation& op, unsigned part);
    void hand_on(const Operation& op, unsigned row, unsigned part);
    void take_result(const Operation& op, unsigned worker);
    void take_hop(const Operation& op, unsigned worker, unsigned hop);
    void send_hop(const Operation& op, unsigned worker, unsigned hop);
    void finish(const Operation& op, unsigned worker);
};

} // namespace sim
