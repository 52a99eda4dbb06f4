/* SPDX-License-Identifier: GPL-2.0-only */
#include "sum_slots.h"

#include <algorithm>

extern "C" {
#include "base/bits.h"
}

namespace sim {

namespace {

enum { SOURCE = 12, DESTINATION = 16, HEADERS = 28 /* of IPv4 and UDP */, MULTICAST = 0xE };

/* A word is one number, so a carry goes from lane to lane. */
void add(uint8_t* to, const uint8_t* from) {
    unsigned __int128 carry = 0;
    for (int i = GL_SUM_WORD - 8; i >= 0; i -= 8) {
        carry += static_cast<unsigned __int128>(get64(to + i)) + get64(from + i);
        put64(to + i, static_cast<uint64_t>(carry));
        carry >>= 64;
    }
}

bool has_the_form(const uint8_t* packet, uint32_t bytes, bool from_fabric) {
    const uint8_t* const h = packet + HEADERS;
    const unsigned length = get16(h + GL_AT_LENGTH), lanes = length - GL_SUM_BYTES;
    return packet[DESTINATION] >> 4 == MULTICAST && length >= GL_SUM_BYTES + GL_SUM_WORD && !(lanes % GL_SUM_WORD) &&
           lanes <= GL_MAX_SUM_WORDS * GL_SUM_WORD && bytes >= HEADERS + GL_HEADER + length && !get16(h + GL_AT_BUDGET) &&
           (from_fabric || !(h[GL_AT_FLAGS] & GL_FLAG_PULL));
}

} // namespace

SumOutcome SumSlots::drop(uint16_t job, SumEvent why) {
    counts[{job, why}]++;
    return {SumOutcome::DROPPED};
}

void SumSlots::restart() {
    slots_.clear();
    for (auto& [of, tree] : trees) tree.epoch = static_cast<uint8_t>(tree.epoch % 255 + 1);
}

SumOutcome SumSlots::take(uint8_t* packet, uint32_t bytes, uint16_t port, bool from_fabric) {
    uint8_t* const h = packet + HEADERS;
    uint8_t* const sum = h + GL_HEADER;
    uint8_t* const lanes = sum + GL_SUM_BYTES;
    const uint16_t job = get16(h + GL_AT_JOB), length = get16(h + GL_AT_LENGTH);
    const uint32_t number = get32(h + GL_AT_MESSAGE), generation = get32(sum + GL_SUM_AT_GENERATION);
    const uint32_t told = get32(sum + GL_SUM_AT_MEMBERS), lane_bytes = length - GL_SUM_BYTES;
    const bool is_result = h[GL_AT_FLAGS] & GL_FLAG_PULL;
    if (!has_the_form(packet, bytes, from_fabric)) return drop(job, SumEvent::REFUSED);
    const auto found = trees.find({job, static_cast<uint8_t>(number % BUCKETS)});
    if (found == trees.end()) return drop(job, SumEvent::NO_SLOTS);
    const SumTree& tree = found->second;

    /* Whom it accounts for, who is in it, who may be missing; whether who sends it has the result, and is not above. */
    uint32_t covers = tree.all, brings = told, may_miss = 0;
    bool reminds = false, in_part = false;
    if (is_result) {
        reminds = port != tree.up;
    } else if (from_fabric) {
        const auto beneath = subtrees.find({port, job});
        if (beneath == subtrees.end()) return drop(job, SumEvent::NO_SLOTS);
        covers = beneath->second.workers;
        if (const uint32_t whole = beneath->second.whole) brings = covers, in_part = told != whole;
    } else {
        const auto worker = contributors.find({port, get32(packet + SOURCE), job});
        if (worker == contributors.end()) return drop(job, SumEvent::NO_SLOTS);
        covers = brings = worker->second;
        reminds = told & covers;
        if (sum[GL_SUM_AT_EPOCH] == tree.epoch) may_miss = told & tree.here;
        else if (sum[GL_SUM_AT_EPOCH]) return drop(job, SumEvent::STALE);
    }

    const uint32_t index = (tree.slot_base + (get16(sum + GL_SUM_AT_SLOT) & tree.slot_mask)) & (SLOTS - 1);
    Slot& slot = slots_[index];
    uint32_t age = generation - slot.generation;
    if (!age) age = number - slot.number;
    const bool first = slot.job != job || (age && !(age >> 31));
    uint32_t covered = first ? 0 : slot.covered;
    const bool known = !is_result && covered & covers;
    if ((!first && (age || slot.length != length)) || brings & ~covers || in_part) return drop(job, SumEvent::STALE);
    SumOutcome outcome = {SumOutcome::TO_PORT, port};
    if (covered == tree.all) {
        if (reminds && tree.here != tree.all) {
            outcome.port = tree.up;
            counts[{job, SumEvent::PARTIAL}]++;
        } else if (is_result) {
            return drop(job, SumEvent::DUPLICATE);
        } else {
            counts[{job, slot.members & covers ? SumEvent::ANSWER : SumEvent::LATE}]++;
        }
    } else {
        if (first || is_result) {
            slot.job = job, slot.length = length, slot.generation = generation, slot.number = number;
            slot.members = brings;
            std::copy_n(lanes, lane_bytes, slot.lanes.begin());
        } else if (!known) {
            slot.members |= brings;
            for (uint32_t at = 0; at < lane_bytes; at += GL_SUM_WORD) add(slot.lanes.data() + at, lanes + at);
        }
        covered |= covers;
        if ((covered | may_miss) == tree.here) covered = tree.here;
        slot.covered = covered;
        if (!known && !is_result) counts[{job, SumEvent::CONTRIBUTION}]++;
        if (covered == tree.all) {
            counts[{job, SumEvent::RESULT}]++;
            outcome = {SumOutcome::TO_GROUP, 0, &tree.group};
        } else if (covered == tree.here) {
            counts[{job, SumEvent::PARTIAL}]++;
            outcome.port = tree.up;
        } else {
            return known ? drop(job, SumEvent::DUPLICATE) : SumOutcome{SumOutcome::ABSORBED};
        }
    }
    if (covered == tree.all) h[GL_AT_FLAGS] |= GL_FLAG_PULL;
    put32(packet + SOURCE, tree.address);
    put32(sum + GL_SUM_AT_MEMBERS, slot.members);
    sum[GL_SUM_AT_EPOCH] = tree.epoch;
    std::copy_n(slot.lanes.begin(), lane_bytes, lanes);
    return outcome;
}

} // namespace sim
