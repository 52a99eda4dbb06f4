/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What all the streams that come into a host's port may have, as in RCP (Dukkipati, 2007).
 */
#include "rate/lock.h"
#include "rate/pacing.h"
#include "rate/tenant.h"

enum { SHARE_WINDOW = 2000 }; /* us over which a port's use is measured */

static const double SHARE_GAIN = 1.0 / 2;    /* of the spare fraction, each SHARE_WINDOW */
static const double SHARE_SPARE = 1.0 / 16;  /* less than that is a full port */
static const double SHARE_REACTION = 4000;   /* us until a new share has slowed its streams */
static const double SHARE_NEWS = 1.0 / 16;   /* a change that is told before its time */

/* Tells every sender its share as soon as something of its stream arrives. */
static void tell_all(tenant *t) { t->news++; }

static void tell_all_jobs(gl_port *port) {
    port->told_share = port->share;
    for (tenant *t = port->tenants; t; t = t->next) tell_all(t);
}

/* What moves the end away does not move it in the heap: it is looked at when the earlier end has come. */
static void set_end(tenant *t, sharer *s, uint64_t at) {
    s->active_until = at;
    if (!s->active.place || at < s->active.key) heap_put(&t->active, &s->active, at);
}

static unsigned count_streams(tenant *t, uint64_t now) {
    for (heap_item *first; (first = heap_first(&t->active)) && first->key <= now;) {
        sharer *s = container_of(first, sharer, active);
        if (s->active_until > now)
            heap_put(&t->active, first, s->active_until);
        else
            heap_remove(&t->active, first);
    }
    return t->active.count;
}

/* A stream more fills the port's buffer within milliseconds. */
static void grow(tenant *t, uint64_t now) {
    const unsigned streams = count_streams(t, now);
    if (streams <= t->streams) return;
    t->streams = streams;
    tell_all(t);
}

void share_grow(tenant *t, uint64_t now) {
    now = port_enter(t->port, now);
    grow(t, now);
    port_unlock(t->port);
}

void share_expect(tenant *t, unsigned rank, bool multicast, uint64_t now) {
    sharer *s = sharer_of(t, rank, multicast);
    now = port_enter(t->port, now);
    if (rank != t->rank && s->active_until < now + STREAM_IDLE) set_end(t, s, now + STREAM_IDLE);
    port_unlock(t->port);
}

void share_end(tenant *t, unsigned rank) {
    sharer *s = sharer_of(t, rank, false);
    port_lock(t->port);
    if (s->active_until && t->streams > 1) t->streams--, tell_all(t);
    s->active_until = 0;
    heap_remove(&t->active, &s->active);
    port_unlock(t->port);
}

/* The weight of the jobs that something comes in of; their `streams` are counted anew. */
static double count_jobs(gl_port *port, uint64_t now) {
    double weight = 0;
    for (tenant *t = port->tenants; t; t = t->next) {
        const unsigned streams = count_streams(t, now);
        if (!streams) continue;
        weight += t->weight;
        t->streams = streams;
    }
    return weight;
}

/* Notes that a stream comes in. It is over with the last slice of its message, or when it falls silent; the next message's
 * first slice revives it. Returns whether the share was begun anew. */
static bool count_stream(tenant *t, sharer *s, bool end, uint64_t now) {
    gl_port *port = t->port;
    const bool known = s->active_until > now, job_known = now - t->heard <= STREAM_IDLE;
    set_end(t, s, now + (end ? STREAM_IDLE / 4 : STREAM_IDLE));
    t->heard = now;
    if (known) return false;
    if (!job_known) t->streams = 0;
    grow(t, now);
    if (now - port->window_start > STREAM_IDLE) {
        port->weight = t->weight;
        port->share = USABLE * port->rate / port->weight;
        tell_all_jobs(port);
        return true;
    }
    if (!job_known) {
        double weight = 0;
        for (const tenant *o = port->tenants; o; o = o->next)
            if (now - o->heard <= STREAM_IDLE) weight += o->weight;
        if (weight > port->weight) {
            port->share *= port->weight / weight;
            port->weight = weight;
            tell_all_jobs(port);
        }
    }
    return false;
}

/* What a weight of one is told follows what the port has to spare, so streams that wait for something else leave their part
 * to the others; never below the equal part. */
static void count(tenant *t, unsigned rank, bool multicast, bool end, uint32_t bytes, uint64_t now) {
    gl_port *port = t->port;
    const double usable = USABLE * port->rate;
    if (count_stream(t, sharer_of(t, rank, multicast), end, now)) {
        port->window_start = now, port->window_bytes = bytes;
        return;
    }
    const uint64_t elapsed = now - port->window_start;
    port->window_bytes += bytes;
    if (elapsed < SHARE_WINDOW) return;
    port->weight = count_jobs(port, now);
    const double equal = usable / port->weight;
    if (elapsed < 2 * SHARE_WINDOW) {
        /* A full port looks the same however much too fast its senders are, so what is above the equal part must go. */
        const double spare = 1 - (double)port->window_bytes / (double)elapsed / usable;
        if (spare > SHARE_SPARE)
            port->share *= 1 + SHARE_GAIN * spare;
        else
            port->share -= (port->share - equal) / 2;
    }
    if (port->share < equal) port->share = equal;
    /* Streams that rest come back all at once: no more than the buffer takes until the others have heard of it. */
    const double most = equal * (1 + port->queue_time / SHARE_REACTION);
    if (port->share > most) port->share = most;
    port->window_start = now, port->window_bytes = 0;
    if (port->share < port->told_share * (1 - SHARE_NEWS) || port->share > port->told_share * (1 + SHARE_NEWS))
        tell_all_jobs(port);
}

static uint32_t room_of(const tenant *t) {
    const gl_port *port = t->port;
    if (!port->receive_bytes) return UINT32_MAX;
    const double room = room_at(port->rate, port->receive_bytes, t->streams) * t->weight / port->weight / t->streams;
    return room < UINT32_MAX ? (uint32_t)room : UINT32_MAX;
}

static double share_of(const tenant *t) {
    const double share = t->port->share * t->weight / t->streams;
    return share > USABLE * t->rate ? USABLE * t->rate : share;
}

allotment share_count(tenant *t, unsigned rank, bool multicast, bool end, uint32_t bytes, uint64_t now) {
    meter_count(&t->in, bytes, meter_window(t), now);
    now = port_enter(t->port, now);
    count(t, rank, multicast, end, bytes, now);
    const allotment found = {.share = share_of(t), .room = room_of(t), .news = t->news};
    port_unlock(t->port);
    return found;
}
