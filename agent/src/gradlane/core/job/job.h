/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A job at this rank, as all parts of its engine see it: settings, the host's port, round trips, timers, memory, what is to be
 * sent at once, and counts.
 */
#ifndef GRADLANE_JOB_H
#define GRADLANE_JOB_H

#include "base/heap.h"
#include "base/pool.h"
#include "job/config.h"
#include "job/losses.h"
#include "job/statistics.h"
#include "job/upcalls.h"
#include "rate/flow.h"
#include "rate/rtt.h"
#include "rate/tenant.h"

enum { RING = 4096 }; /* messages of one source that are remembered, so that a late PROBE gets its STOP */

/* A moment at which something is looked at: a message that is sent (a target), one that is received, an operation, a stream
 * of sums, or the window of messages with a budget. */
typedef enum { OF_TARGET = 0, OF_RECEIVED, OF_OPERATION, OF_STREAM, OF_WINDOW } timed;
typedef struct {
    heap_item item;
    timed of;
} timer;

typedef struct control control;
typedef struct mail mail;

typedef struct {
    gl_config config;
    unsigned ranks, stride_bits; /* stride: a power of two */
    tenant tenant;
    uplink uplink;
    rtt *rtts; /* by rank */
    heap timers;
    pool pool;
    uint64_t kept; /* bytes of contributions that wait, and what is taken of its memory for others (engine.h) */
    mail *mail, *mail_first, **mail_end; /* controls, by rank and then multicast; the receivers of those that wait */
    gl_statistics statistics;
    bool holds, crowded; /* what is being received may be held where it lies; it could be, but all other buffers are held */
    bool failed;       /* memory was out: the job is over, and does nothing any more */
    gl_counts *counts; /* by rank, then multicast; within by loss class, then what has none */
    const upcalls *up;
    void *above;
} job;

/* Takes its own copies of the configuration's lists. False: memory is out, or the configuration makes no sense. What it has
 * taken is given back by job_free in any case. */
bool job_new(job *j, const gl_config *config, const upcalls *up, void *above);
void job_leave(job *j); /* its port, which others may share */
void job_free(job *j);

static inline gl_counts *counts_of(const job *j, unsigned rank, uint32_t loss_class) {
    return &j->counts[rank * (j->config.loss_count + 1) + loss_class];
}
/* Whether so many slices more may be kept. */
static inline bool has_memory(const job *j, uint64_t slices) {
    return j->kept + slices * j->config.slice_bytes <= j->config.memory;
}
/* For a slice that is being received: where it lies, or another place for what is made of it. NULL: memory is out. */
static inline slot *slot_of_payload(job *j, const uint8_t *payload) {
    if (j->holds) return slot_hold(&j->pool, payload);
    j->statistics.slices_copied += j->crowded;
    return slot_new(&j->pool);
}
static inline bool is_set(const timer *t) { return t->item.place; }
/* What is forgotten would hang the training, so the job ends where memory is out. */
static inline void queue_put(job *j, heap *h, heap_item *item, uint64_t key) {
    if (!heap_put(h, item, key)) j->failed = true;
}
static inline void timer_set(job *j, timer *t, uint64_t at) { queue_put(j, &j->timers, &t->item, at); }
static inline void timer_stop(job *j, timer *t) { heap_remove(&j->timers, &t->item); }

#endif
