/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The slots in which a switch sums, as p4src/v1model/aggregation.p4 has them, without ns-3, so that they can be compared with
 * the P4 program, frame by frame. UDP checksums are left out: in the simulation there are none.
 */
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "wire.h"

namespace sim {

/* As enum SumEvent of p4src/shared/sums.p4 numbers them. */
enum class SumEvent : uint8_t { CONTRIBUTION, RESULT, ANSWER, DUPLICATE, STALE, NO_SLOTS, REFUSED, LATE, PARTIAL };

/* What a switch has of one of a job's trees. `all`: the bits of the job's workers; `here`: of those beneath this switch, at the
 * root all. `up`: the port towards the root; `group`: the ports by which results go down; `address`: of what the switch makes. */
struct SumTree {
    uint32_t all = 0, here = 0;
    uint16_t up = 0;
    std::vector<uint16_t> group;
    uint32_t slot_base = 0, slot_mask = 0, address = 0;
    uint8_t epoch = 0;
};

/* What a switch takes from one beneath it: sums of any of `workers`. Or, if `whole` is not 0, those with these members, which
 * stand for all that are there: of a job of more workers than bits. */
struct SumSubtree {
    uint32_t workers = 0, whole = 0;
};

/* What becomes of a SUM: it is added and no more, or dropped for another reason, or has become what leaves by one port, or by
 * all of a group. */
struct SumOutcome {
    enum Fate : uint8_t { ABSORBED, DROPPED, TO_PORT, TO_GROUP } fate;
    uint16_t port = 0;
    const std::vector<uint16_t>* group = nullptr;
};

class SumSlots {
  public:
    enum { BUCKETS = 16, SLOTS = 4096 };
    std::map<std::pair<uint16_t, uint8_t>, SumTree> trees;                      /* by job and bucket */
    std::map<std::tuple<uint16_t, uint32_t, uint16_t>, uint32_t> contributors; /* by port, address and job: a worker's bit */
    std::map<std::pair<uint16_t, uint16_t>, SumSubtree> subtrees;               /* by port and job */
    std::map<std::pair<uint16_t, SumEvent>, uint64_t> counts;                   /* by job and event */

    /* Whether the Gradlane header of a gradient says so. */
    static bool is_sum(const uint8_t* h) {
        return ((h[0] & 15) == GL_KIND_DATA || (h[0] & 15) == GL_KIND_REPAIR) && h[GL_AT_FLAGS] & GL_FLAG_SUM;
    }
    /* `packet`: all of an IPv4 packet, a SUM; it becomes what leaves. */
    SumOutcome take(uint8_t* packet, uint32_t bytes, uint16_t port, bool from_fabric);
    /* The switch forgets them; what it makes from now on has another epoch. */
    void restart();

  private:
    struct Slot {
        uint32_t generation = 0, number = 0, covered = 0, members = 0;
        uint16_t job = 0, length = 0;
        std::array<uint8_t, GL_MAX_SUM_WORDS * GL_SUM_WORD> lanes{};
    };
    std::unordered_map<uint32_t, Slot> slots_;

    SumOutcome drop(uint16_t job, SumEvent why);
};

} // namespace sim
