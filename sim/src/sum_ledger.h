/* SPDX-License-Identifier: GPL-2.0-only
 *
 * What is guaranteed of sums in switches, counted from the datagrams that hosts send and get: a slice has one result, which is
 * the sum of what its members have contributed, and nobody is missing in more slices of a message than its budget.
 */
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "wire.h"

namespace sim {

class SumLedger {
  public:
    /* A contribution, of a rank. */
    void sent(const uint8_t* header, unsigned rank);
    /* A sum has come to a host of a job of so many workers; `tolerated`: parts per million of its message's slices in which one
     * of them may be missing. Returns what it breaks, nothing if it is as it should be. */
    std::string delivered(const uint8_t* header, unsigned workers, uint32_t tolerated);
    /* Slices that have a result. */
    uint64_t results() const { return results_; }
    /* Workers that are missing in them. */
    uint64_t missing() const { return missing_; }

  private:
    struct Slice {
        std::unordered_map<unsigned, uint64_t> contributions; /* their lanes' digests, by rank */
        uint32_t members = 0;                                 /* of the result; 0: it has not come */
        uint64_t digest = 0;
    };
    using Key = std::tuple<uint16_t, uint32_t, uint16_t, uint32_t>; /* job, generation, tensor, and number or step */
    std::map<Key, Slice> slices_;                                   /* by number */
    std::map<Key, std::map<unsigned, uint32_t>> missing_in_;        /* by step: slices, by rank */
    uint64_t results_ = 0, missing_ = 0;
};

} // namespace sim
