/* SPDX-License-Identifier: GPL-2.0-only */
#include "policy.h"

#include <algorithm>

extern "C" {
#include "base/bits.h"
}

namespace sim {

namespace {

constexpr uint64_t NANO = 1'000'000'000;
constexpr uint32_t BUDGET_SLOTS = 65536;
constexpr uint16_t LAST_COUNTED_LAYER = 511; /* those above are counted with it */
enum { TCP = 6, UDP = 17, FRAGMENT = 0x3FFF, CONTROL_CLASS = 7, ECN_NOT_CAPABLE = 0, ECN_CAPABLE = 2, ECN_CONGESTED = 3, UDP_PORT = 47400 };

std::array<uint32_t, 256> crc_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320U ^ c >> 1 : c >> 1;
        table[i] = c;
    }
    return table;
}

uint8_t lookup(const std::vector<Range>& ranges, uint16_t layer, uint8_t magnitude) {
    for (const Range& r : ranges)
        if (r.first_layer <= layer && layer <= r.last_layer && r.least <= magnitude && magnitude <= r.most) return r.value;
    return 0;
}

/* Validation of p4src/shared/validation.p4. `h`: the header after UDP. */
bool is_gradient(const uint8_t* packet, uint32_t held, bool from_fabric) {
    if (packet[9] != UDP || held < DECIDING_BYTES || get16(packet + IPV4_BYTES + 2) != UDP_PORT) return false;
    const uint8_t* h = packet + IPV4_BYTES + UDP_BYTES;
    const unsigned kind = h[0] & 15, slices = get16(h + GL_AT_SLICES), length = get16(h + GL_AT_LENGTH);
    const unsigned udp = get16(packet + IPV4_BYTES + 4), carried = kind == GL_KIND_TRIMMED ? 0 : length;
    if (h[0] >> 4 != GL_VERSION || kind > GL_KIND_TRACE || (kind == GL_KIND_TRIMMED && !from_fabric)) return false;
    return slices >= 1 && slices <= GL_MAX_SLICES && get16(h + GL_AT_SLICE) < slices && get16(h + GL_AT_BUDGET) <= slices &&
           udp == UDP_BYTES + GL_HEADER + carried;
}

} // namespace

Meter::Meter(uint64_t bytes_per_second, uint64_t committed_burst, uint64_t peak_burst)
    : rate_(bytes_per_second), bursts_{committed_burst, peak_burst},
      tokens_{static_cast<unsigned __int128>(committed_burst) * NANO, static_cast<unsigned __int128>(peak_burst) * NANO} {}

Color Meter::color(uint32_t bytes, uint64_t now) {
    if (seen_ != UINT64_MAX) {
        const unsigned __int128 gained = static_cast<unsigned __int128>(rate_) * (now - seen_);
        for (int k = 0; k < 2; k++)
            tokens_[k] = std::min(static_cast<unsigned __int128>(bursts_[k]) * NANO, tokens_[k] + gained);
    }
    seen_ = now;
    const unsigned __int128 amount = static_cast<unsigned __int128>(bytes) * NANO;
    if (tokens_[1] < amount) return RED;
    tokens_[1] -= amount;
    if (tokens_[0] < amount) return YELLOW;
    tokens_[0] -= amount;
    return GREEN;
}

uint16_t BudgetShare::of(uint16_t budget) const {
    switch (part) {
    case WHOLE: return budget;
    case REST_OF_HALF: return budget - budget / 2;
    case HALF: return budget / 2;
    case QUARTER: return budget / 4;
    case EIGHTH: return budget / 8;
    case SIXTEENTH: return budget / 16;
    case NOTHING: break;
    }
    return 0;
}

uint16_t flow_number(const uint8_t* packet) {
    static const std::array<uint32_t, 256> table = crc_table();
    uint32_t crc = 0xFFFFFFFF;
    const auto add = [&crc](uint8_t byte) { crc = table[(crc ^ byte) & 255] ^ crc >> 8; };
    for (int i = 12; i < 20; i++) add(packet[i]);
    add(packet[9]);
    const bool ports = (packet[9] == TCP || packet[9] == UDP) && !(get16(packet + 6) & FRAGMENT);
    for (int i = IPV4_BYTES; i < IPV4_BYTES + 4; i++) add(ports ? packet[i] : 0);
    return static_cast<uint16_t>(~crc);
}

bool Policy::take(const JobPolicy& job, uint32_t message, uint16_t share, Reason& reason) {
    const uint32_t number = (job.slot_base + (message & job.slot_mask)) & (BUDGET_SLOTS - 1);
    const auto [at, fresh] = slots_.try_emplace(number);
    Slot& slot = at->second;
    const uint32_t distance = message - slot.message, drops = distance ? 0 : slot.drops;
    /* A slot that nobody has used yet has no age. */
    const bool unused = !slot.message && !slot.drops;
    if (distance >> 31 && !unused) {
        reason = Reason::STALE_MESSAGE;
        return false;
    }
    if (drops >= share) {
        reason = Reason::BUDGET_SPENT;
        return false;
    }
    slot = {message, drops + 1};
    return true;
}

bool Policy::is_sum(const uint8_t* packet, uint32_t held, bool from_fabric) const {
    return !sums.trees.empty() && is_gradient(packet, held, from_fabric) && SumSlots::is_sum(packet + IPV4_BYTES + UDP_BYTES);
}

void Policy::restart() {
    slots_.clear();
    sums.restart();
}

/* Copies are metered as they leave, whatever their class. */
void Policy::copy(Decision& d, const std::vector<uint16_t>& group, uint32_t frame_bytes, uint64_t now) {
    for (const uint16_t port : group) {
        const auto queue = virtual_queues.find(port);
        const bool congested = queue != virtual_queues.end() && queue->second.color(frame_bytes, now) != GREEN;
        const bool marked = congested && (d.tos & 3) != ECN_NOT_CAPABLE;
        d.copies.push_back({port, static_cast<uint8_t>(marked ? d.tos | ECN_CONGESTED : d.tos)});
    }
}

Decision Policy::decide(uint8_t* packet, uint32_t held, uint32_t frame_bytes, const Entry& entry,
                        const std::vector<uint16_t>& members, uint64_t now) {
    const Decision d = decided(packet, held, frame_bytes, entry, members, now);
    counts_.reasons[static_cast<unsigned>(d.reason)]++;
    if (is_taken(d.reason)) {
        const uint8_t* const h = packet + IPV4_BYTES + UDP_BYTES;
        const uint16_t layer = std::min<uint16_t>(get16(h + GL_AT_LAYER), LAST_COUNTED_LAYER);
        counts_.drops[{layer, h[GL_AT_MAGNITUDE] >> 4}]++;
    }
    return d;
}

Decision Policy::decided(uint8_t* packet, uint32_t held, uint32_t frame_bytes, const Entry& entry,
                         const std::vector<uint16_t>& members, uint64_t now) {
    Decision d;
    const bool from_fabric = entry.from_fabric;
    uint8_t dscp = packet[1] >> 2, ecn = packet[1] & 3;
    d.gradient = is_gradient(packet, held, from_fabric);
    uint8_t* const h = packet + IPV4_BYTES + UDP_BYTES;
    const unsigned kind = h[0] & 15;
    const JobPolicy* job = nullptr;
    uint16_t job_number = 0, layer = 0, budget = 0;
    if (d.gradient) {
        job_number = get16(h + GL_AT_JOB), layer = get16(h + GL_AT_LAYER), budget = get16(h + GL_AT_BUDGET);
        const auto found = jobs.find(job_number);
        if (found != jobs.end()) job = &found->second;
    }

    /* Tagging. */
    if (!d.gradient) {
        const auto found = dscp_classes.find(dscp);
        d.queue_class = found == dscp_classes.end() ? 0 : found->second;
    } else if (from_fabric) {
        d.queue_class = dscp >> 3, d.precedence = dscp & 7;
    } else if (kind == GL_KIND_DATA || kind == GL_KIND_REPAIR || (kind == GL_KIND_TRACE && !(h[GL_AT_FLAGS] & GL_FLAG_RETURNED))) {
        if (job) {
            d.queue_class = lookup(job->classes, layer, 0);
            if (kind == GL_KIND_DATA && budget) d.precedence = lookup(job->precedences, layer, h[GL_AT_MAGNITUDE]);
        }
    } else {
        d.queue_class = CONTROL_CLASS;
    }
    bool demoted = false;
    if (!from_fabric && d.queue_class == CONTROL_CLASS) {
        const auto rate = control_rates.find(entry.port);
        demoted = rate != control_rates.end() && rate->second.color(frame_bytes, now) != GREEN;
        if (demoted) d.reason = Reason::DEMOTED, d.queue_class = 0;
    }

    const auto mark = [&] {
        if (d.gradient || demoted) dscp = static_cast<uint8_t>(d.queue_class << 3 | d.precedence);
        if (d.gradient && !from_fabric) ecn = d.precedence ? ECN_NOT_CAPABLE : ECN_CAPABLE;
        if (d.color != GREEN && ecn != ECN_NOT_CAPABLE) ecn = ECN_CONGESTED;
        d.tos = static_cast<uint8_t>(dscp << 2 | ecn);
        packet[1] = d.tos;
    };

    /* Sums, and routing. */
    if (is_sum(packet, held, from_fabric)) {
        const SumOutcome sum = sums.take(packet, held, entry.port, from_fabric);
        if (sum.fate == SumOutcome::ABSORBED || sum.fate == SumOutcome::DROPPED) {
            d.reason = sum.fate == SumOutcome::ABSORBED ? Reason::ABSORBED : Reason::DROPPED_SUM;
            return d;
        }
        d.egress = sum.port;
        if (sum.fate == SumOutcome::TO_GROUP) {
            mark();
            copy(d, *sum.group, frame_bytes, now);
            return d;
        }
    } else if (members.empty()) {
        d.reason = Reason::DROPPED_NO_ROUTE;
        return d;
    } else if (members.size() > 1) {
        uint16_t number = flow_number(packet);
        if (d.gradient && job && job->spray) {
            const uint16_t way = get16(h + GL_AT_SOURCE) >> GL_SOURCE_BITS;
            number += way ? way : static_cast<uint16_t>(get32(h + GL_AT_MESSAGE) + get16(h + GL_AT_SLICE));
        }
        if (from_fabric) number >>= entry.chosen_bits;
        d.egress = members[number % members.size()];
    } else {
        d.egress = members[0];
    }

    /* Congestion. */
    const auto found_port = ports.find(d.egress);
    const PortPolicy port = found_port == ports.end() ? PortPolicy{} : found_port->second;
    bool has_share = false;
    Color share_color = RED;
    uint8_t excess_class = 0;
    if (job) {
        const auto share = job_shares.find({job_number, d.egress});
        if (share != job_shares.end()) {
            has_share = true;
            share_color = share->second.meter.color(frame_bytes, now);
            excess_class = share->second.excess_class;
        }
    }
    const auto queue = virtual_queues.find(d.egress);
    if (d.queue_class >= port.lowest_metered_class && queue != virtual_queues.end())
        d.color = queue->second.color(frame_bytes, now);
    if (d.color != GREEN && d.gradient) {
        if (has_share && share_color != GREEN && d.queue_class > excess_class && d.queue_class != CONTROL_CLASS)
            d.queue_class = excess_class;
        const uint8_t from = d.color == YELLOW ? port.yellow : port.red;
        if (kind == GL_KIND_DATA && d.precedence && d.precedence >= from) {
            if (share_color == GREEN) {
                d.reason = Reason::WITHIN_SHARE;
            } else {
                const uint16_t part = budget_shares[from_fabric][port.to_fabric].of(budget);
                const uint16_t share = std::min<uint16_t>(part, job ? job->max_share : 0);
                if (take(job ? *job : JobPolicy{}, get32(h + GL_AT_MESSAGE), share, d.reason)) {
                    if (job && job->trim) {
                        d.reason = d.color == RED ? Reason::TRIMMED_RED : Reason::TRIMMED_YELLOW;
                        d.trimmed = true;
                    } else {
                        d.reason = d.color == RED ? Reason::DROPPED_RED : Reason::DROPPED_YELLOW;
                        return d;
                    }
                }
            }
        }
    }
    if (d.trimmed) {
        h[0] = static_cast<uint8_t>(GL_VERSION << 4 | GL_KIND_TRIMMED);
        put16(packet + 2, DECIDING_BYTES);
        put16(packet + IPV4_BYTES + 4, UDP_BYTES + GL_HEADER);
        put16(packet + IPV4_BYTES + 6, 0);
        d.queue_class = CONTROL_CLASS, d.precedence = 0, ecn = ECN_CAPABLE;
    }

    mark();
    return d;
}

} // namespace sim
