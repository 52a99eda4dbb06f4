/* SPDX-License-Identifier: GPL-2.0-only
 *
 * A training job, whoever carries its bytes: every worker computes, and has its tensors reduced as they become ready; the
 * next step begins when all are.
 */
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace sim {

using Json = nlohmann::json;

/* A gradient: when it is ready after the beginning of a step's computation (ns), and its size in bytes. */
struct Tensor {
    uint64_t ready, bytes;
    uint16_t layer;
};

/* How long a worker's operation took: from its submission there to its result. ns. */
struct OperationTime {
    uint64_t start, end;
    uint32_t step;
    uint16_t rank, tensor;
};

class Job {
  public:
    /* `spec`: "members", "servers", "steps", "tensors", "compute", "delays"; see gradlane_sim/workloads.py. */
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

    /* A rank contributes to (step, tensor) now. */
    virtual void submit(unsigned rank, uint32_t step, unsigned tensor) = 0;
    /* Its result is there. */
    void completed(unsigned rank, uint32_t step, unsigned tensor);
    uint64_t submitted(unsigned rank, uint32_t step, unsigned tensor) const;

  private:
    struct Progress {
        uint32_t step = 0; /* counted from 1 on */
        unsigned open = 0; /* tensors without a result, and the computation */
        std::vector<uint64_t> submitted;
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
    void one_less(unsigned rank);
};

} // namespace sim
