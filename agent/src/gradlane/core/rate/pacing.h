/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What flows and ports count on in time: when the next batch is due, and when receivers report.
 */
#ifndef GRADLANE_PACING_H
#define GRADLANE_PACING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/batch.h"

enum {
    PACKET = 1500,           /* bytes */
    FRAME_OVERHEAD = 42,     /* bytes of Ethernet, IPv4 and UDP headers */
    REPORT_EVERY = 8,        /* slices, but neither more often nor, if any came, more seldom than: */
    REPORT_LEAST = 100,      /* us */
    REPORT_MOST = 1000,      /* us */
    STREAM_IDLE = 6000,      /* us without a slice after which a stream counts as over */
    BURST = 500,             /* us of its rate that a batch carries, and half of what a wake-up does, at most */
    PATIENCE_MIN = 20,       /* us that a sleep costs */
    CACHED = 1 << 19,        /* bytes in flight into a host whose processor is the limit: more would leave the cache unread; */
    STREAM_LEAST = 72 << 10, /* but so many of each stream: more than a batch, so that what answers to one goes with the next */
};

static const double USABLE = 0.98; /* of a link, so that a queue that has grown drains again */

/* Whether from one batch to the next is less than a sleep costs: then the processor is the limit, and not the link. */
static inline bool is_fast(double rate) { return 1.25 * GL_BATCH_BYTES < PATIENCE_MIN * rate; }

/* Bytes of so many streams that may be in flight into a host whose sockets hold `held`; 0: no bound. */
static inline double room_at(double rate, uint64_t held, double streams) {
    const double least = streams * STREAM_LEAST, most = least > CACHED ? least : CACHED;
    return is_fast(rate) && most < (double)held ? most : (double)held;
}

/* us of what is due that a wake-up sends: a second batch of a flow is among that if the queue time has room for it. Where a
 * packet takes longer, each is sent when it is due. */
static inline double span_of(double queue_time, double rate) {
    const double span = queue_time < 1.2 * BURST ? queue_time / 2 : 1.1 * BURST;
    return span * rate < PACKET ? 0 : span;
}

/* When the next batch is due. A late wake-up may be made good by sending faster, up to what queues are to hold. */
static inline uint64_t next_due(double queue_time, uint64_t next, uint64_t now, double bytes, double rate) {
    const uint64_t credit = (uint64_t)(queue_time / 2);
    const uint64_t from = next + credit > now ? next : now - credit;
    return from + (uint64_t)(bytes / rate);
}

#endif
