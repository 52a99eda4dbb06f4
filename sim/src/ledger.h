/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The guarantees, counted from the datagrams alone, by one who sees all of them: no message ends with more than its budget
 * missing, switches take no more than the budget either, and nothing that is protected. And how long messages took. What a switch
 * sums: sum_ledger.h.
 */
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sum_ledger.h"
#include "wire.h"

namespace sim {

struct MessageTime {
    uint64_t start, end; /* ns: it was submitted, or, of a result, its first slice was sent; the receiver stopped it */
    uint32_t bytes;
    uint16_t job, from, to;
    bool pull;
};

class Ledger {
  public:
    /* Parts per million that may be lost of a message of this job and layer. */
    std::function<uint32_t(uint16_t job, uint16_t layer, bool pull)> tolerated;
    /* Whether slices of this job, layer and magnitude have a drop precedence. */
    std::function<bool(uint16_t job, uint16_t layer, uint8_t magnitude)> droppable;
    /* When a rank submitted (step, tensor) of a job; 0: it did not. ns. */
    std::function<uint64_t(uint16_t job, uint16_t rank, uint32_t step, uint16_t tensor)> submitted;

    /* Workers of a job. */
    std::function<unsigned(uint16_t job)> workers;

    void sent(const uint8_t* header, uint32_t bytes, unsigned from, unsigned to, uint64_t now);
    void delivered(const uint8_t* header, uint32_t bytes, unsigned to);
    /* A switch has dropped or trimmed it by its policy; it was of this kind. */
    void taken(const uint8_t* header, uint8_t kind);

    const std::vector<MessageTime>& times() const { return times_; }
    /* What broke a guarantee; as few as a person reads. */
    const std::vector<std::string>& violations() const { return violations_; }
    const SumLedger& sums() const { return sums_; }
    uint64_t stops() const { return stops_; }
    uint64_t slices_missing() const { return missing_; }

  private:
    struct Message {
        std::vector<bool> came;
        uint64_t start = 0;
        uint32_t count = 0, taken = 0;
        bool stopped = false;
    };
    std::unordered_map<uint64_t, Message> messages_; /* by job and message */
    std::vector<MessageTime> times_;
    std::vector<std::string> violations_;
    SumLedger sums_;
    uint64_t stops_ = 0, missing_ = 0;

    void violation(const std::string& text);
};

} // namespace sim
