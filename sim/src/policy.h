/* SPDX-License-Identifier: GPL-2.0-only
 *
 * What a Gradlane switch does with a packet: the decisions of p4src/v1model/gradlane.p4, without the guard (in the simulation
 * no host lies, and all are members of a job), without ns-3, so that they can be compared with the P4 program, packet by packet. Integers only.
 */
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "sum_slots.h"
#include "wire.h"

namespace sim {

enum Color : uint8_t { GREEN, YELLOW, RED };

/* As enum Reason of p4src/shared/types.p4 numbers them; those that can occur here. */
enum class Reason : uint8_t {
    FORWARDED = 0,
    BUDGET_SPENT = 1,
    STALE_MESSAGE = 2,
    WITHIN_SHARE = 3,
    TRIMMED_YELLOW = 6,
    TRIMMED_RED = 7,
    DROPPED_YELLOW = 12,
    DROPPED_RED = 13,
    DROPPED_NO_ROUTE = 15,
    DEMOTED = 28,
    ABSORBED = 29,
    DROPPED_SUM = 30,
};
constexpr unsigned REASONS = 32;

constexpr bool is_drop(Reason r) { return r >= Reason::DROPPED_YELLOW && r != Reason::DEMOTED; }
constexpr bool is_taken(Reason r) {
    return r == Reason::TRIMMED_YELLOW || r == Reason::TRIMMED_RED || r == Reason::DROPPED_YELLOW || r == Reason::DROPPED_RED;
}

/* A two-rate three-colour meter (RFC 2698) with CIR = PIR: the virtual queue of a port, or a job's share of it. Bytes and ns. */
class Meter {
  public:
    Meter(uint64_t bytes_per_second, uint64_t committed_burst, uint64_t peak_burst);
    Color color(uint32_t bytes, uint64_t now);

  private:
    uint64_t rate_, bursts_[2];
    unsigned __int128 tokens_[2]; /* bytes times 10^9 */
    uint64_t seen_ = UINT64_MAX;
};

struct Range {
    uint16_t first_layer, last_layer;
    uint8_t least, most, value;
};

/* What a switch knows of a job. */
struct JobPolicy {
    uint32_t slot_base = 0, slot_mask = 0;
    uint16_t max_share = 0;
    bool trim = false, spray = true;
    std::vector<Range> classes, precedences;
};

/* Which part of a message's budget a switch may take, by where a packet comes from and goes to: as budget >> shift, or
 * budget - (budget >> shift) if `rest`. */
struct BudgetShare {
    enum Part : uint8_t { NOTHING, WHOLE, REST_OF_HALF, HALF, QUARTER, EIGHTH, SIXTEENTH } part = NOTHING;
    uint16_t of(uint16_t budget) const;
};

/* Where a packet comes in. What comes from another switch has so many bits of its flow's number in common. */
struct Entry {
    uint16_t port = 0;
    bool from_fabric = false;
    unsigned chosen_bits = 0;
};

struct PortPolicy {
    uint8_t lowest_metered_class = 0, yellow = 7, red = 1;
    bool to_fabric = false;
};

/* How much of the IPv4 packet decides. */
enum { IPV4_BYTES = 20, UDP_BYTES = 8, DECIDING_BYTES = IPV4_BYTES + UDP_BYTES + GL_HEADER };

struct Decision {
    Reason reason = Reason::FORWARDED;
    bool gradient = false, trimmed = false;
    uint8_t queue_class = 0, precedence = 0, tos = 0;
    Color color = GREEN;
    uint16_t egress = 0;
    struct Copy {
        uint16_t egress;
        uint8_t tos;
    };
    std::vector<Copy> copies; /* of a sum that goes to all of a group; else there are none */
};

/* As the switch's counters have it. */
struct PolicyCounts {
    std::array<uint64_t, REASONS> reasons{};
    std::map<std::pair<uint16_t, uint8_t>, uint64_t> drops; /* by layer and upper half of the magnitude: dropped or trimmed */
};

class Policy {
  public:
    std::map<uint16_t, JobPolicy> jobs;
    std::map<uint8_t, uint8_t> dscp_classes;                   /* of what is no gradient; else 0 */
    std::map<uint16_t, PortPolicy> ports;                      /* by egress port */
    std::map<uint16_t, Meter> virtual_queues;                  /* by egress port */
    std::map<uint16_t, Meter> control_rates;                   /* by ingress port: of the top class, from a host */
    std::array<std::array<BudgetShare, 2>, 2> budget_shares{}; /* [from fabric][to fabric] */
    struct Share {
        Meter meter;
        uint8_t excess_class;
    };
    std::map<std::pair<uint16_t, uint16_t>, Share> job_shares; /* by job and egress port */
    SumSlots sums;

    /* Whether deciding takes all of a packet, of which this is the beginning: it is a SUM, and the switch sums. */
    bool is_sum(const uint8_t* packet, uint32_t held, bool from_fabric) const;
    /* `packet`: at least the first DECIDING_BYTES, or all, of an IPv4 packet of `frame_bytes` on the wire, whose TOS, and if it
     * is trimmed whose lengths and kind, are rewritten. Of a SUM all of it, which becomes what leaves. `members`: the egress ports of its route. `now`: ns. */
    Decision decide(uint8_t* packet, uint32_t held, uint32_t frame_bytes, const Entry& entry, const std::vector<uint16_t>& members,
                    uint64_t now);
    const PolicyCounts& counts() const { return counts_; }
    /* The switch forgets all that it has learned of packets. */
    void restart();

  private:
    struct Slot {
        uint32_t message = 0, drops = 0;
    };
    std::unordered_map<uint32_t, Slot> slots_;
    PolicyCounts counts_;
    Decision decided(uint8_t* packet, uint32_t held, uint32_t frame_bytes, const Entry& entry,
                     const std::vector<uint16_t>& members, uint64_t now);
    bool take(const JobPolicy& job, uint32_t message, uint16_t share, Reason& reason);
    void copy(Decision& d, const std::vector<uint16_t>& group, uint32_t frame_bytes, uint64_t now);
};

/* The number of a flow by which one of several ports is chosen: half of a CRC-32 over addresses, protocol and ports,
 * which are 0 where it has none. */
uint16_t flow_number(const uint8_t* packet);

} // namespace sim
