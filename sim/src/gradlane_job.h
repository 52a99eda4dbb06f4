/* SPDX-License-Identifier: GPL-2.0-only
 *
 * A job whose gradients Gradlane's engines reduce.
 */
#pragma once

#include <map>

#include "agent.h"
#include "job.h"
#include "sum_control.h"

namespace sim {

class GradlaneJob : public Job {
  public:
    /* `agents`: by host. `spec`: beside a job's, "carrier" as gl_config names it, and "check": results are compared with
     * the mean in rank order, of all or of the group, those of switches with one another, too, and with the mean as far as
     * they are fine. */
    GradlaneJob(const Json& spec, Fabric& fabric, std::vector<std::unique_ptr<Agent>>& agents);

    Json result() const override;
    void drop(unsigned host) override;
    std::string waiting() const override;
    uint16_t number() const { return number_; }
    unsigned workers() const { return workers_; }
    /* As Ledger asks. */
    uint32_t tolerated(uint16_t layer, bool pull) const;
    bool droppable(uint16_t layer, uint8_t magnitude) const;
    uint64_t submission_time(uint16_t rank, uint32_t step, uint16_t tensor) const {
        const Operation operation = operation_of(step, tensor);
        return operation.tensor < tensors_.size() ? submitted(rank, operation) : 0;
    }

  protected:
    void submit(unsigned rank, const Operation& operation) override;

  private:
    std::vector<std::unique_ptr<Agent>>& agents_;
    std::vector<gl_engine*> engines_;
    std::vector<std::vector<bool>> knows_; /* by rank: groups of which its engine was told */
    std::vector<gl_loss> losses_;
    std::vector<gl_range> classes_, precedences_;
    std::vector<uint16_t> racks_; /* by worker; empty: all are in one */
    const uint16_t slice_bytes_;
    uint8_t algorithm_;
    uint64_t compared_ = 0, wrong_ = 0, lost_slices_ = 0; /* results; slices that LOST and MISSED told of */
    std::vector<float> values_;                            /* rank r contributes those from its r-th on */
    std::vector<std::vector<float>> outs_;                 /* by rank, or one for all ranks, where nothing is compared */
    std::vector<uint64_t> first_;                          /* of a tensor's elements */
    const bool check_;
    std::map<unsigned, std::vector<float>> expected_;      /* by group */
    std::vector<uint8_t> magnitudes_;
    std::vector<std::vector<uint16_t>> layers_;
    std::unique_ptr<SumControl> control_;                               /* of sums in switches; NULL: hosts sum */
    std::map<Operation, std::vector<float>> found_; /* of a step's tensor, what the first rank got */
    std::map<Operation, unsigned> same_;            /* and how many ranks have been compared with it */
    const uint32_t skipped_; /* steps that are not simulated: a first one by hosts, of which the sums' exponents are */
    unsigned resolution_ = 0;                                           /* units that a result's greatest element has at least */

    void tell_group(unsigned rank, unsigned group);
    void on_event(unsigned rank, const gl_event& event);
    void start_sums(const Json& sums, Fabric& fabric);
    void skip_step();
    void look();
    unsigned parts() const;
    Operation operation_of(uint32_t step, uint16_t tensor) const; /* as they are on the wire */
    void compare(unsigned rank, const Operation& operation);
    const std::vector<float>& mean_of(unsigned group);
};

} // namespace sim
