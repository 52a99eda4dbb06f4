/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A job at its host's port: the order of the jobs on the way out (port.c), and what the streams that come in may have
 * (share.c). Engines of different threads share a port: all that they have in common is read and written under its lock.
 */
#ifndef GRADLANE_TENANT_H
#define GRADLANE_TENANT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/heap.h"
#include "rate/meter.h"
#include "rate/port.h"

typedef struct tenant tenant;

struct gl_port {
    pthread_mutex_t lock;
    uint64_t clock;                  /* the latest time that an engine has said: another thread's may be behind it */
    tenant *tenants;
    uint64_t receive_bytes;
    double rate, queue_time;         /* bytes per us; us */
    uint64_t next_send, until;       /* until: what is due before is sent together */
    uint64_t turn, latest;           /* us that the last paced batch takes; until when the next one is put off, at most */
    double sent_share;               /* of the job that sent last, before that */
    bool contested;                  /* since a time, one waits for another whose turn it is, and which has not sent */
    uint64_t contested_at;
    double weight;                   /* of the jobs that something comes in of */
    double share, told_share;        /* of the streams of a weight of one, bytes per us */
    uint64_t window_start, window_bytes;
};

/* A stream that comes in. */
typedef struct {
    heap_item active;      /* among those of the job that do, by when this may be over at the earliest */
    uint64_t active_until;
    uint32_t told;         /* of the news of its job */
} sharer;

struct tenant {
    gl_port *port;
    tenant *next;
    double rate, queue_time;   /* of the link, as the job's file says: bytes per us; us */
    double weight, sent_share; /* bytes sent for a weight of one */
    bool waits;                /* for the port, to send */
    unsigned rank, ranks;
    sharer *sharers;  /* by rank: unicast, multicast */
    heap active;      /* of them, those that are not known to be over; there is room for all */
    uint32_t news;    /* how often there was some: who has not been told the latest gets it at once */
    unsigned streams; /* that come in at present */
    uint64_t heard;   /* when the last slice came */
    meter in, out;    /* slices on the link */
};

/* us: of its meters, several times what a port takes to send all that it holds, and of many slices. */
static inline uint64_t meter_window(const tenant *t) {
    const double queues = 4 * t->queue_time, slices = 65536 / t->rate, least = 6000;
    const double longer = queues > slices ? queues : slices;
    return (uint64_t)(longer > least ? longer : least);
}

static inline sharer *sharer_of(const tenant *t, unsigned rank, bool multicast) { return &t->sharers[2 * rank + multicast]; }

/* Of `t` the port, the link, the weight, the ranks, the sharers and the room for active ones are set. */
void port_join(tenant *t);
void port_leave(tenant *t);
/* One wake-up sends all that is due up to this time: `now`, or later if something that was due has been sent. */
uint64_t port_horizon(gl_port *port, uint64_t now);
/* When what is due then may be sent: then, or when the port is free; `now` if that is within the horizon. */
uint64_t port_due(gl_port *port, uint64_t due, uint64_t now);
uint64_t port_free_at(gl_port *port);
bool port_take(tenant *t, uint64_t now); /* whether it may send now; if not, it waits */
void port_sent(tenant *t, double bytes, bool more, uint64_t now); /* `more`: it waits again */
void port_wait(tenant *t, bool waits); /* it has something to send, or nothing */
void port_spend(gl_port *port, double bytes, uint64_t now); /* sent without waiting: the next ones wait longer, within bounds */

/* A rank is going to send. share_grow comes after all of them. */
void share_expect(tenant *t, unsigned rank, bool multicast, uint64_t now);
void share_grow(tenant *t, uint64_t now);
/* What a rank sent is over, as the order of sending tells: its part is free at once. */
void share_end(tenant *t, unsigned rank);
/* What each stream of a job may have, bytes per us; the bytes that it may have in flight, so that all of them fit into the
 * sockets, at most; and the latest news. */
typedef struct {
    double share;
    uint32_t room, news;
} allotment;

/* A slice has come in; `bytes`: on the link. `end`: it is the last of its message. Returns what its stream may have now. */
allotment share_count(tenant *t, unsigned rank, bool multicast, bool end, uint32_t bytes, uint64_t now);

#endif
