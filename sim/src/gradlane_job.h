/* SPDX-License-Identifier: GPL-2.0-only
 *
 * A job whose gradients Gradlane's engines reduce.
 */
#pragma once

#include "agent.h"
#include "job.h"

namespace sim {

class GradlaneJob : public Job {
  public:
    /* `agents`: by host. `spec`: beside a job's, "carrier" as gl_config names it, and "check": results are compared with
     * the mean in rank order. */
    GradlaneJob(const Json& spec, std::vector<std::unique_ptr<Agent>>& agents);

    Json result() const override;
    void drop(unsigned host) override;
    std::string waiting() const override;
    uint16_t number() const { return number_; }
    /* As Ledger asks. */
    uint32_t tolerated(uint16_t layer, bool pull) const;
    bool droppable(uint16_t layer, uint8_t magnitude) const;
    uint64_t submission_time(uint16_t rank, uint32_t step, uint16_t tensor) const { return submitted(rank, step, tensor); }

  protected:
    void submit(unsigned rank, uint32_t step, unsigned tensor) override;

  private:
    std::vector<std::unique_ptr<Agent>>& agents_;
    std::vector<gl_engine*> engines_;
    std::vector<gl_loss> losses_;
    std::vector<gl_range> classes_, precedences_;
    const uint16_t slice_bytes_;
    uint8_t algorithm_;
    bool exact_;
    uint64_t compared_ = 0, wrong_ = 0, lost_slices_ = 0; /* results; slices that LOST and MISSED told of */
    std::vector<float> values_;                            /* rank r contributes those from its r-th on */
    std::vector<std::vector<float>> outs_;                 /* by rank, or one for all ranks, where nothing is compared */
    std::vector<uint64_t> first_;                          /* of a tensor's elements */
    std::vector<float> expected_;
    std::vector<uint8_t> magnitudes_;
    std::vector<std::vector<uint16_t>> layers_;

    void on_event(unsigned rank, const gl_event& event);
    void compare(unsigned rank, unsigned tensor);
};

} // namespace sim
