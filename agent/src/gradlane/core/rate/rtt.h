/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Round trips to a rank, and the queue that a sample has waited in.
 */
#ifndef GRADLANE_RTT_H
#define GRADLANE_RTT_H

#include <stdbool.h>
#include <stdint.h>

enum { INITIAL_RTT = 1000 /* us */ };

static const uint64_t BASE_LIFE = 1000000; /* us: shortest delays are forgotten after one to two of these */
static const uint32_t SPREAD_MOST = 300;   /* us */
static const uint32_t NO_QUEUE = UINT32_MAX; /* of a sample that tells none */

typedef struct {
    uint32_t srtt, variation; /* smoothed, and by how much samples differ from that (RFC 6298) */
    uint32_t base[2];         /* the shortest of this BASE_LIFE and of the one before: UINT32_MAX: none */
    uint32_t there[2];      /* the same of the path there alone, by its clock against ours */
    uint64_t base_until;
} rtt;

void rtt_start(rtt *r);
/* us by which one thing may be later than another, on this path or on one that is longer: `least`, or what delays vary by, unless
 * that is so much that it is a queue. */
static inline uint32_t rtt_spread(const rtt *r, uint32_t least) {
    const uint32_t spread = 4 * r->variation < SPREAD_MOST ? 4 * r->variation : SPREAD_MOST;
    return least > spread ? least : spread;
}
/* us after which what was sent, or the answer to it, has probably been lost: but for what waits in queues. */
static inline uint32_t rtt_overdue(const rtt *r) { return 2 * r->srtt; }
static inline uint32_t rtt_shortest(const rtt *r) { return r->base[0] < r->base[1] ? r->base[0] : r->base[1]; }
/* The path is not what it was: the next sample begins anew. */
static inline void rtt_forget(rtt *r) { r->base_until = 0; }
/* `sample`: the round trip; `there`: when it arrived by the receiver's clock less when it was sent by ours. `hidden`: a
 * queue that others hold hides how long the path is. Returns us of queueing on the path there, or NO_QUEUE. */
uint32_t rtt_sample(rtt *r, uint32_t sample, uint32_t there, bool hidden, uint64_t now);

#endif
