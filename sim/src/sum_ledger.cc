/* SPDX-License-Identifier: GPL-2.0-only */
#include "sum_ledger.h"

extern "C" {
#include "base/bits.h"
}

namespace sim {

namespace {

/* Of the lanes: the digest of a sum is the sum of the digests. */
uint64_t digest_of(const uint8_t* h) {
    const unsigned bytes = get16(h + GL_AT_LENGTH) - GL_SUM_BYTES, width = (h[GL_AT_ELEMENT_TYPE] & 15) == GL_TYPE_INT16_LANES ? 2 : 4;
    const uint8_t* const lanes = h + GL_HEADER + GL_SUM_BYTES;
    uint64_t digest = 0, factor = 1;
    for (unsigned at = 0; at + width <= bytes; at += width) {
        factor *= 0x9E3779B97F4A7C15;
        digest += factor * (width == 2 ? get16(lanes + at) : get32(lanes + at));
    }
    return digest;
}

bool is_whole(const uint8_t* h) { return get16(h + GL_AT_LENGTH) >= GL_SUM_BYTES; }

std::string named(const uint8_t* h) {
    return "slice " + std::to_string(get32(h + GL_AT_MESSAGE)) + " of job " + std::to_string(get16(h + GL_AT_JOB));
}

} // namespace

void SumLedger::sent(const uint8_t* h, unsigned rank) {
    if (!is_whole(h)) return;
    const uint32_t generation = get32(h + GL_HEADER + GL_SUM_AT_GENERATION);
    const Key key{get16(h + GL_AT_JOB), generation, get16(h + GL_AT_TENSOR), get32(h + GL_AT_MESSAGE)};
    slices_[key].contributions.try_emplace(rank, digest_of(h));
}

std::string SumLedger::delivered(const uint8_t* h, unsigned workers, uint32_t tolerated) {
    if (!is_whole(h)) return named(h) + " came without a sum";
    const uint8_t* const sum = h + GL_HEADER;
    const uint32_t members = get32(sum + GL_SUM_AT_MEMBERS), generation = get32(sum + GL_SUM_AT_GENERATION);
    const uint16_t job = get16(h + GL_AT_JOB), tensor = get16(h + GL_AT_TENSOR);
    const uint64_t digest = digest_of(h);
    Slice& slice = slices_[{job, generation, tensor, get32(h + GL_AT_MESSAGE)}];
    if (slice.members) return slice.members == members && slice.digest == digest ? "" : named(h) + " has two results";
    slice.members = members, slice.digest = digest;
    results_++;
    /* Of more workers than bits all are in it. */
    const bool named_each = workers <= 8 * sizeof members;
    if (!named_each && members != UINT32_MAX) return named(h) + " lacks workers of a job in which nobody may be missing";
    uint64_t wanted = 0;
    const uint64_t slices = get16(h + GL_AT_SLICES), most = slices * tolerated / 1'000'000;
    for (unsigned rank = 0; rank < workers; rank++) {
        const auto it = slice.contributions.find(rank);
        if (!named_each || members >> rank & 1) {
            if (it != slice.contributions.end()) wanted += it->second;
            continue;
        }
        missing_++;
        if (++missing_in_[{job, generation, tensor, get32(h + GL_AT_STEP)}][rank] > most)
            return "rank " + std::to_string(rank) + " is missing in more than " + std::to_string(most) + " of " + std::to_string(slices) +
                   " slices, the last of them " + named(h);
    }
    if (!members || wanted != digest) return named(h) + " is not the sum of its members' contributions";
    return "";
}

} // namespace sim
