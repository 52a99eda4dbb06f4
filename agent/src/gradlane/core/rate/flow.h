/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A flow: slices that one rate governs, towards one rank or to an aggregator's multicast group.
 */
#ifndef GRADLANE_FLOW_H
#define GRADLANE_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "rate/controller.h"
#include "wire.h"

/* What the flows of a job at one host have in common. */
typedef struct {
    double rate;            /* bytes per us of the host's link */
    double queue_time;      /* us that slices may spend in queues */
    uint64_t receive_bytes; /* that a receiver's sockets hold, taken to be like ours; 0: no bound */
    uint32_t datagram;      /* bytes of a whole slice with its header */
    unsigned rank, ranks;
    const controller *controller;
} uplink;

/* What a receiver of a flow last reported. */
typedef struct {
    uint32_t received, marked;   /* slices, as in a report */
    uint32_t acknowledged;       /* what of the flow was sent before this slice is settled */
    int32_t missing;                         /* the most that ever was */
    double share;   /* bytes per us that it leaves for the flow; 0: not told yet */
    uint32_t room;  /* bytes that it can take at once */
    bool awaited;   /* nothing is settled before it is here */
} receiver;

struct flow {
    const uplink *uplink;
    receiver *receivers;
    unsigned receiver_count;
    double rate, share;           /* bytes per us; share: what its receivers leave it */
    uint32_t room;                /* bytes that its receivers can take at once */
    uint64_t next_send;
    uint32_t sequence, acknowledged; /* slices sent, those settled */
    uint64_t sent_at;
    unsigned asked;               /* how often the receiver was, as nothing was heard of what is in flight */
    uint64_t asked_at;
    uint64_t progress_at;         /* when `acknowledged` last rose, or there was nothing to acknowledge */
    uint32_t rtt, srtt;           /* shortest to the receiver that last reported, and smoothed */
    double covered;               /* losses that budgets cover */
    uint64_t delivered, held;     /* slices; of them, those while congestion held it well below its share */
    bool competes;                /* with flows that only losses slow down, whose queue hides how long the path is */
    void *state;                  /* the controller's */
};

enum { MARKED_MASK = (1 << GL_MARKED_BITS) - 1 };

/* A REPORT. What follows `known` is about the slice that it was sent after, if that is still known. */
typedef struct {
    uint32_t received, marked; /* slices, since the beginning; marked: its lower GL_MARKED_BITS bits */
    double share;
    uint32_t room;
    bool known;
    uint32_t sequence;         /* of the flow */
    uint32_t rtt, there;       /* as of rtt_sample */
} report;

/* `receivers`: 1, or by rank those of the multicast group, to be marked as awaited. False if memory is out. */
bool flow_new(flow *f, const uplink *uplink, unsigned receivers);
void flow_free(flow *f);
/* A flow that was idle has something to send. `meeting`: flows that meet at the busiest port of the path; `alone`: fewer of
 * this host send, so that it waits for its phase. */
void flow_begin(flow *f, uint64_t idle, unsigned meeting, bool alone, uint64_t now);
uint64_t flow_due(const flow *f);       /* when it may next send */
bool flow_open(flow *f, uint64_t now);  /* whether it may send now */
bool flow_full(const flow *f);          /* as much is in flight as may be: if it is due, it is time to ask, and then to give up */
bool flow_asks(const flow *f, uint64_t now); /* of one that is due: whether it is time to ask */
void flow_asked(flow *f, uint64_t now);
void flow_give_up(flow *f);             /* what is in flight is lost */
/* Datagrams of a batch at that rate, at most: with those that have been sent ahead they fill no more than a queue may hold. */
unsigned uplink_burst(const uplink *u, double rate, uint64_t due, uint64_t now);
static inline unsigned flow_burst(const flow *f, uint64_t now) { return uplink_burst(f->uplink, f->rate, f->next_send, now); }
void flow_sent(flow *f, double bytes, uint64_t now);
/* A slice of the first pass is sent, of a message of `slices` that may lose `budget` of them. */
static inline void flow_earn(flow *f, uint32_t budget, uint32_t slices) {
    if (!budget) return;
    f->covered += (double)budget / slices;
    if (f->covered > budget) f->covered = budget;
}
/* What was sent up to `sequence` has arrived at that receiver, or never will. */
void flow_acknowledge(flow *f, receiver *by, uint32_t sequence, uint64_t now);
/* Slices that are marked, of those that no report before it told of. */
static inline uint32_t newly_marked(const receiver *by, const report *r) { return (r->marked - by->marked) & MARKED_MASK; }
/* False: it is older than what has come before. */
bool flow_report(flow *f, receiver *by, rtt *to, const report *r, uint64_t now);

#endif
