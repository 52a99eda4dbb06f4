/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Who averages with whom in a job without a global step: by a schedule, or as whoever has started the program answers when a
 * worker asks, as Ripples' workers ask their group generator.
 */
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <nlohmann/json.hpp>

namespace sim {

using Json = nlohmann::json;
using Ranks = std::vector<uint16_t>; /* ascending */

class Groups {
  public:
    /* `spec`: see Job.groups of gradlane_sim/specification.py. Without: one group of all workers, number 0. */
    Groups(const Json& spec, uint16_t job, unsigned workers);

    /* A step's average may take as long as the next step computes. */
    bool behind() const { return behind_; }
    /* The number of the group of a worker that has computed its step, from 1 on; it may be alone in it. */
    unsigned after(unsigned rank, uint32_t step);
    /* That of a group which has been decided for a worker that takes no steps any more. */
    unsigned left(unsigned rank, uint32_t step);
    const Ranks& members(unsigned group) const { return groups_.at(group); }
    /* How many there are, by now. */
    unsigned count() const { return static_cast<unsigned>(groups_.size()); }
    /* Sets of ranks that may have messages for one another. */
    std::vector<Ranks> meeting() const;

  private:
    const uint16_t job_;
    const unsigned workers_;
    const bool asked_, behind_;
    std::vector<std::vector<unsigned>> schedule_; /* by step, in turn, and rank: the group */
    std::vector<Ranks> groups_;
    std::map<Ranks, unsigned> numbers_;

    unsigned number_of(const Ranks& group);
    unsigned ask(unsigned rank, uint32_t step, bool pause);
};

} // namespace sim
