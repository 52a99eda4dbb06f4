/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Which packets of a flow are sent, and which have come: both ends keep no more than this.
 */
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <vector>

namespace sim {

/* At the sender: a packet is new, in flight, lost or acknowledged. */
class FlowSender {
  public:
    explicit FlowSender(uint32_t packets) : sent_at_(packets, NEW) {}

    bool has_next() const { return !lost_.empty() || new_ < sent_at_.size(); }
    /* Which to send now: the earliest lost one, else a new one. It is in flight from now on. ns. */
    uint32_t take(uint64_t now);
    void acknowledge(uint32_t sequence);
    /* It has to be sent again. */
    void lose(uint32_t sequence);
    /* All that are in flight for so long (ns) are lost: how many. */
    unsigned expire(uint64_t now, uint64_t timeout);
    /* When the oldest in flight was sent; UINT64_MAX: there is none. */
    uint64_t oldest();
    uint32_t in_flight() const { return in_flight_; }
    uint32_t unsent() const { return static_cast<uint32_t>(sent_at_.size()) - new_; }
    uint32_t unacknowledged() const { return static_cast<uint32_t>(sent_at_.size()) - acknowledged_; }
    bool over() const { return !unacknowledged(); }

  private:
    struct Sent {
        uint32_t sequence;
        uint64_t at;
    };
    static constexpr uint64_t NEW = UINT64_MAX, LOST = UINT64_MAX - 1, ACKNOWLEDGED = UINT64_MAX - 2;
    std::vector<uint64_t> sent_at_; /* ns, of those in flight */
    std::deque<Sent> sent_;         /* in the order of sending; some are not in flight any more */
    std::set<uint32_t> lost_;
    uint32_t new_ = 0, acknowledged_ = 0, in_flight_ = 0;
    bool in_flight(uint32_t sequence) const { return sent_at_[sequence] < ACKNOWLEDGED; }
    void forget();
};

/* At the receiver. */
class FlowReceiver {
  public:
    explicit FlowReceiver(uint32_t packets) : came_(packets), missing_(packets) {}
    /* True: it is the first of that sequence number. */
    bool take(uint32_t sequence) {
        if (sequence >= came_.size() || came_[sequence]) return false;
        came_[sequence] = true;
        missing_--;
        return true;
    }
    bool over() const { return !missing_; }

  private:
    std::vector<bool> came_;
    uint32_t missing_;
};

} // namespace sim
