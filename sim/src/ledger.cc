/* SPDX-License-Identifier: GPL-2.0-only */
#include "ledger.h"

extern "C" {
#include "base/bits.h"
}

namespace sim {

namespace {

uint64_t key_of(const uint8_t* h) { return static_cast<uint64_t>(get16(h + GL_AT_JOB)) << 32 | get32(h + GL_AT_MESSAGE); }
bool is_slice(const uint8_t* h) { return (h[0] & 15) == GL_KIND_DATA || (h[0] & 15) == GL_KIND_REPAIR; }
bool is_whole(const uint8_t* h, uint32_t bytes) { return bytes == GL_HEADER + static_cast<uint32_t>(get16(h + GL_AT_LENGTH)); }
bool is_sum(const uint8_t* h) { return is_slice(h) && h[GL_AT_FLAGS] & GL_FLAG_SUM; }

constexpr size_t MOST_VIOLATIONS = 20;

} // namespace

void Ledger::violation(const std::string& text) {
    if (violations_.size() < MOST_VIOLATIONS) violations_.push_back(text);
}

void Ledger::sent(const uint8_t* h, uint32_t bytes, unsigned from, unsigned to, uint64_t now) {
    if (bytes < GL_HEADER) return;
    if (is_sum(h)) {
        sums_.sent(h, from);
    } else if (is_slice(h)) {
        Message& m = messages_[key_of(h)];
        if (m.start) return;
        const bool pull = h[GL_AT_FLAGS] & GL_FLAG_PULL;
        m.start = pull ? 0 : submitted(get16(h + GL_AT_JOB), static_cast<uint16_t>(from), get32(h + GL_AT_STEP), get16(h + GL_AT_TENSOR));
        if (!m.start) m.start = now;
    }
    if ((h[0] & 15) != GL_KIND_STOP) return;
    Message& m = messages_[key_of(h)];
    if (m.stopped) return;
    m.stopped = true;
    stops_++;
    const uint32_t slices = get16(h + GL_AT_SLICES);
    const uint16_t job = get16(h + GL_AT_JOB);
    const bool pull = h[GL_AT_FLAGS] & GL_FLAG_PULL;
    const uint64_t most = static_cast<uint64_t>(tolerated(job, get16(h + GL_AT_LAYER), pull)) * slices / 1'000'000;
    missing_ += slices - m.count;
    if (slices - m.count > most)
        violation("message " + std::to_string(get32(h + GL_AT_MESSAGE)) + " of job " + std::to_string(job) + " ended with " +
                  std::to_string(slices - m.count) + " of " + std::to_string(slices) + " slices missing; " + std::to_string(most) + " may be");
    times_.push_back({m.start ? m.start : now, now, slices, job, static_cast<uint16_t>(to),
                      static_cast<uint16_t>(from), pull});
    m.came = {};
}

void Ledger::delivered(const uint8_t* h, uint32_t bytes, unsigned) {
    if (bytes < GL_HEADER || !is_slice(h) || !is_whole(h, bytes)) return;
    if (is_sum(h)) {
        const uint16_t job = get16(h + GL_AT_JOB);
        const std::string wrong = sums_.delivered(h, workers(job), tolerated(job, get16(h + GL_AT_LAYER), false));
        if (!wrong.empty()) violation(wrong);
        return;
    }
    Message& m = messages_[key_of(h)];
    if (m.stopped) return;
    m.came.resize(get16(h + GL_AT_SLICES));
    const uint16_t slice = get16(h + GL_AT_SLICE);
    if (slice < m.came.size() && !m.came[slice]) {
        m.came[slice] = true;
        m.count++;
    }
}

void Ledger::taken(const uint8_t* h, uint8_t kind) {
    Message& m = messages_[key_of(h)];
    if (kind != GL_KIND_DATA || !droppable(get16(h + GL_AT_JOB), get16(h + GL_AT_LAYER), h[GL_AT_MAGNITUDE]))
        violation("a switch took a protected slice of message " + std::to_string(get32(h + GL_AT_MESSAGE)));
    if (++m.taken > static_cast<uint32_t>(get16(h + GL_AT_BUDGET)))
        violation("switches took " + std::to_string(m.taken) + " slices of message " + std::to_string(get32(h + GL_AT_MESSAGE)) +
                  "; its budget is " + std::to_string(get16(h + GL_AT_BUDGET)));
}

} // namespace sim
