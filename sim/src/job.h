/* SPDX-License-Identifier: GPL-2.0-only
 *
 * A training job, whoever carries its bytes: every worker computes, and has its tensors reduced as they become ready; the
 * next step begins when all are. Or it has groups: after its computation a worker has all tensors averaged in one of them.
 */
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "groups.h"

namespace sim {

/* A gradient: when it is ready after the beginning of a step's computation (ns), and its size in bytes. */
struct Tensor {
    uint64_t ready, bytes;
    uint16_t layer;
};

/* What the members of a group do together with a tensor, for the number-th time, from 1 on. Of all workers that is the step. */
struct Operation {
    unsigned group;
    uint32_t number;
    unsigned tensor;
    auto operator<=>(const Operation&) const = default;
};

/* How long a worker's operation took: from its submission there to its result. ns. */
struct OperationTime {
    uint64_t start, end;
    uint32_t step;
    uint16_t rank, tensor;
    unsigned group;
};

class Job {
  public:
    /* `spec`: "members", "servers", "steps", "tensors", "compute", "delays", "weights", "groups"; see
     * gradlane_sim/specification.py. */
    explicit Job(const Json& spec);
    virtual ~Job() = default;
    Job(const Job&) = delete;

    void start();
    bool over() const { return finished_ == workers_ || !error_.empty(); }
    const std::string& error() const { return error_; }
    virtual Json result() const;
    /* It is no use to go on: why. */
    void fail(const std::string& why);
    /* A member of the job is dead, as the others have found out. */
    virtual void drop(unsigned host) = 0;
    /* Whom the oldest operation waits for, if that is known. */
    virtual std::string waiting() const { return ""; }

    std::function<void()> on_over;
    std::function<void(unsigned step)> on_step; /* the last worker has completed it */

  protected:
    const uint16_t number_;
    const unsigned workers_, servers_, steps_;
    std::vector<unsigned> hosts_; /* of the ranks: workers, then servers */
    std::vector<Tensor> tensors_;
    const bool grouped_; /* averages are of groups; otherwise all is of all workers, group 0 */
    Groups groups_;
    std::vector<uint32_t> shares_; /* of the owners of a tensor's parts, added up from 0 on; empty: equal ones */

    /* A rank contributes now. */
    virtual void submit(unsigned rank, const Operation& operation) = 0;
    /* Its result is there. */
    void completed(unsigned rank, const Operation& operation);
    /* When it contributed to that; 0: it has not, or has gone on. */
    uint64_t submitted(unsigned rank, const Operation& operation) const;

  private:
    struct Progress {
        uint32_t step = 0, exchanged = 0;         /* counted from 1 on; the one whose average is in flight */
        unsigned group = 0;                       /* in which that is */
        unsigned open = 0;                        /* tensors without a result */
        bool computing = false, due = false, ended = false; /* due: the average of `next` is to begin */
        unsigned next = 0;
        std::vector<uint64_t> submitted;
        std::vector<uint32_t> numbers; /* by group: of its latest operations */
        uint64_t end = 0;              /* of the last step, ns */
    };
    const uint64_t compute_;                    /* ns */
    std::vector<std::vector<uint64_t>> delays_; /* ns, of a step's computation, by step and rank; none: 0 */
    std::vector<Progress> progress_;
    std::vector<OperationTime> times_;
    std::vector<uint64_t> step_ends_;     /* ns */
    std::vector<unsigned> step_arrivals_; /* workers that have completed it */
    unsigned finished_ = 0;
    std::string error_;

    void begin(unsigned rank);
    void contribute(unsigned rank, unsigned tensor);
    void computed(unsigned rank);
    void average(unsigned rank, unsigned group);
    void go_on(unsigned rank);
    void finish(unsigned rank);
};

} // namespace sim
