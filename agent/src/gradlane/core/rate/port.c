/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A host's port: the order of its jobs on the way out.
 */
#include <stdlib.h>

#include "rate/lock.h"
#include "rate/pacing.h"
#include "rate/tenant.h"

enum { YIELD = 50 }; /* us that a port which is free waits for whose turn it is: another thread may be busy */

gl_port *gl_port_new(uint64_t receive_bytes) {
    gl_port *port = calloc(1, sizeof *port);
    if (!port) return NULL;
    port->receive_bytes = receive_bytes;
    /* Who holds it runs at the priority of who waits for it. */
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    const int failed = pthread_mutex_init(&port->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    if (failed) return free(port), NULL;
    return port;
}

void gl_port_free(gl_port *port) {
    if (!port) return;
    pthread_mutex_destroy(&port->lock);
    free(port);
}

/* The link is what the jobs' files say of it. */
static void measure(gl_port *port) {
    port->rate = 0, port->queue_time = 0;
    for (const tenant *t = port->tenants; t; t = t->next) {
        if (t->rate > port->rate) port->rate = t->rate;
        if (!port->queue_time || t->queue_time < port->queue_time) port->queue_time = t->queue_time;
    }
}

void port_join(tenant *t) {
    gl_port *port = t->port;
    port_lock(port);
    t->streams = 1;
    t->next = port->tenants;
    port->tenants = t;
    measure(port);
    if (!port->weight) port->weight = t->weight, port->share = port->told_share = port->rate / t->weight;
    port_unlock(port);
}

void port_leave(tenant *t) {
    port_lock(t->port);
    tenant **at = &t->port->tenants;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    measure(t->port);
    port_unlock(t->port);
}

static uint64_t horizon(const gl_port *port, uint64_t now) { return port->until > now ? port->until - 1 : now; }

uint64_t port_horizon(gl_port *port, uint64_t now) {
    port_lock(port);
    const uint64_t found = horizon(port, now);
    port_unlock(port);
    return found;
}

uint64_t port_due(gl_port *port, uint64_t due, uint64_t now) {
    port_lock(port);
    const uint64_t at = due > port->next_send ? due : port->next_send;
    const bool later = at > horizon(port, now);
    port_unlock(port);
    return later ? at : now;
}

uint64_t port_free_at(gl_port *port) {
    port_lock(port);
    const uint64_t at = port->next_send;
    port_unlock(port);
    return at;
}

/* Whether another waits for the link that has had less of it for its weight (start-time fair queueing, Goyal et al., SIGCOMM
 * 1996). Its thread may do something else at present: then it loses its turn, till it asks again. */
static bool is_before(gl_port *port, const tenant *t, uint64_t now) {
    bool found = false;
    for (const tenant *o = port->tenants; o; o = o->next) found |= o->waits && o->sent_share < t->sent_share;
    if (!found) return false;
    if (!port->contested) port->contested = true, port->contested_at = now;
    if (now - port->contested_at < YIELD) return true;
    for (tenant *o = port->tenants; o; o = o->next) o->waits &= o == t;
    return false;
}

bool port_take(tenant *t, uint64_t now) {
    gl_port *port = t->port;
    bool taken = false;
    now = port_enter(port, now);
    t->waits = true;
    if (horizon(port, now) >= port->next_send) {
        if (t->sent_share < port->sent_share) t->sent_share = port->sent_share;
        taken = !is_before(port, t, now);
        if (taken && port->until <= now) port->until = now + (uint64_t)span_of(port->queue_time, port->rate);
    }
    port_unlock(port);
    return taken;
}

void port_wait(tenant *t, bool waits) {
    port_lock(t->port);
    t->waits = waits;
    port_unlock(t->port);
}

static uint64_t due_after(const gl_port *port, double bytes, uint64_t now) {
    return next_due(port->queue_time, port->next_send, now, bytes, USABLE * port->rate);
}

/* Answers that took all of a slow link would ask in vain for what waits behind them: they put off a paced batch by no more
 * than the one before it took. */
void port_spend(gl_port *port, double bytes, uint64_t now) {
    now = port_enter(port, now);
    if (port->next_send <= now) port->latest = now + port->turn;
    const uint64_t due = due_after(port, bytes, now);
    port->next_send = due < port->latest ? due : port->latest;
    port_unlock(port);
}

void port_sent(tenant *t, double bytes, bool more, uint64_t now) {
    gl_port *port = t->port;
    meter_count(&t->out, bytes, meter_window(t), now);
    now = port_enter(port, now);
    t->waits = more, port->contested = false;
    port->sent_share = t->sent_share;
    t->sent_share += bytes / t->weight;
    port->next_send = due_after(port, bytes, now);
    port->turn = (uint64_t)(bytes / (USABLE * port->rate));
    port->latest = port->next_send + port->turn;
    port_unlock(port);
}
