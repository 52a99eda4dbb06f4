/* SPDX-License-Identifier: GPL-2.0-only */
#include "flow_sender.h"

namespace sim {

uint32_t FlowSender::take(uint64_t now) {
    uint32_t sequence;
    if (lost_.empty()) {
        sequence = new_++;
    } else {
        sequence = *lost_.begin();
        lost_.erase(lost_.begin());
    }
    sent_at_[sequence] = now;
    sent_.push_back({sequence, now});
    in_flight_++;
    return sequence;
}

void FlowSender::acknowledge(uint32_t sequence) {
    if (sequence >= new_ || sent_at_[sequence] == ACKNOWLEDGED) return;
    if (in_flight(sequence))
        in_flight_--;
    else
        lost_.erase(sequence);
    sent_at_[sequence] = ACKNOWLEDGED;
    acknowledged_++;
}

void FlowSender::lose(uint32_t sequence) {
    if (sequence >= new_ || !in_flight(sequence)) return;
    in_flight_--;
    sent_at_[sequence] = LOST;
    lost_.insert(sequence);
}

/* Those in front that are not in flight any more, or were sent again later. */
void FlowSender::forget() {
    while (!sent_.empty() && sent_at_[sent_.front().sequence] != sent_.front().at) sent_.pop_front();
}

unsigned FlowSender::expire(uint64_t now, uint64_t timeout) {
    unsigned count = 0;
    for (forget(); !sent_.empty() && sent_.front().at + timeout <= now; forget(), count++) lose(sent_.front().sequence);
    return count;
}

uint64_t FlowSender::oldest() {
    forget();
    return sent_.empty() ? UINT64_MAX : sent_.front().at;
}

} // namespace sim
