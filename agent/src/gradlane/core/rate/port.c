/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A host's port: the order of its jobs on the way out.
 */
#include <stdlib.h>

#include "rate/pacing.h"
#include "rate/tenant.h"

gl_port *gl_port_new(uint64_t receive_bytes) {
    gl_port *port = calloc(1, sizeof *port);
    if (port) port->receive_bytes = receive_bytes;
    return port;
}

void gl_port_free(gl_port *port) { free(port); }

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
    t->streams = 1;
    t->next = port->tenants;
    port->tenants = t;
    measure(port);
    if (!port->weight) port->weight = t->weight, port->share = port->told_share = port->rate / t->weight;
}

void port_leave(tenant *t) {
    tenant **at = &t->port->tenants;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    measure(t->port);
}

/* Whether it is this job's turn: of those that wait for the link, the one that has had least of it for its weight (start-time
 * fair queueing, Goyal et al., SIGCOMM 1996). */
bool port_take(tenant *t, uint64_t now) {
    gl_port *port = t->port;
    t->waits = true;
    if (port_horizon(port, now) < port->next_send) return false;
    if (t->sent_share < port->sent_share) t->sent_share = port->sent_share;
    for (const tenant *o = port->tenants; o; o = o->next)
        if (o->waits && o->sent_share < t->sent_share) return false;
    if (port->until <= now) port->until = now + (uint64_t)span_of(port->queue_time, port->rate);
    return true;
}

static uint64_t due_after(const gl_port *port, double bytes, uint64_t now) {
    return next_due(port->queue_time, port->next_send, now, bytes, USABLE * port->rate);
}

/* Answers that took all of a slow link would ask in vain for what waits behind them: they put off a paced batch by no more
 * than the one before it took. */
void port_spend(gl_port *port, double bytes, uint64_t now) {
    if (port->next_send <= now) port->latest = now + port->turn;
    const uint64_t due = due_after(port, bytes, now);
    port->next_send = due < port->latest ? due : port->latest;
}

void port_sent(tenant *t, double bytes, bool more, uint64_t now) {
    gl_port *port = t->port;
    t->waits = more;
    meter_count(&t->out, bytes, meter_window(t), now);
    port->sent_share = t->sent_share;
    t->sent_share += bytes / t->weight;
    port->next_send = due_after(port, bytes, now);
    port->turn = (uint64_t)(bytes / (USABLE * port->rate));
    port->latest = port->next_send + port->turn;
}
