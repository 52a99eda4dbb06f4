/* SPDX-License-Identifier: Apache-2.0
 *
 * A host's port: the order of its jobs on the way out, what all the streams that come in may have, as in RCP, and the
 * REPORTs that tell them.
 */
#include "engine/internal.h"

static const double SHARE_GAIN = 1.0 / 2;    /* of the spare fraction, each SHARE_WINDOW */
static const double SHARE_SPARE = 1.0 / 16;  /* less than that is a full port */
static const double SHARE_REACTION = 4000;   /* us until a new share has slowed its streams */
static const double SHARE_NEWS = 1.0 / 16;   /* a change that is told before its time */
static const double USABLE = 0.98; /* of a link, so that a queue that has grown drains again */

gl_port *gl_port_new(uint64_t receive_bytes) {
    gl_port *port = calloc(1, sizeof *port);
    if (port) port->receive_bytes = receive_bytes;
    return port;
}

void gl_port_free(gl_port *port) { free(port); }

/* The link is what the jobs' files say of it. */
static void measure(gl_port *port) {
    port->rate = 0, port->queue_time = 0;
    for (const gl_engine *e = port->engines; e; e = e->next_of_port) {
        if (e->rate > port->rate) port->rate = e->rate;
        if (!port->queue_time || e->queue_time < port->queue_time) port->queue_time = e->queue_time;
    }
}

void port_join(gl_port *port, gl_engine *e) {
    e->port = port;
    e->streams = 1;
    e->next_of_port = port->engines;
    port->engines = e;
    measure(port);
    if (!port->weight) port->weight = e->weight, port->share = port->told_share = port->rate / e->weight;
}

void port_leave(gl_engine *e) {
    gl_engine **at = &e->port->engines;
    while (*at != e) at = &(*at)->next_of_port;
    *at = e->next_of_port;
    measure(e->port);
}

/* Whether it is this engine's turn: of the jobs that wait for the link, the one that has had least of it for its weight
 * (start-time fair queueing, Goyal et al., SIGCOMM 1996). */
bool port_take(gl_engine *e, uint64_t now) {
    gl_port *port = e->port;
    e->waits = true;
    if (now < port->next_send) return false;
    if (e->sent_share < port->sent_share) e->sent_share = port->sent_share;
    for (const gl_engine *o = port->engines; o; o = o->next_of_port)
        if (o->waits && o->sent_share < e->sent_share) return false;
    return true;
}

void port_spend(gl_port *port, uint64_t now, double bytes) {
    port->next_send = next_due(port->queue_time, port->next_send, now, bytes, USABLE * port->rate);
}

void port_sent(gl_engine *e, uint64_t now, double bytes) {
    e->waits = false;
    e->port->sent_share = e->sent_share;
    e->sent_share += bytes / e->weight;
    port_spend(e->port, now, bytes);
}

/* Tells every sender its share as soon as something of its stream arrives. */
static void tell_all(gl_engine *e) {
    for (unsigned rank = 0; rank < e->ranks; rank++) e->peers[rank].news[0] = e->peers[rank].news[1] = true;
}

static void tell_all_jobs(gl_port *port) {
    port->told_share = port->share;
    for (gl_engine *e = port->engines; e; e = e->next_of_port) tell_all(e);
}

static unsigned count_streams(const gl_engine *e, uint64_t now) {
    unsigned streams = 0;
    for (unsigned rank = 0; rank < e->ranks; rank++)
        streams += (e->peers[rank].active_until[0] > now) + (e->peers[rank].active_until[1] > now);
    return streams;
}

/* A stream more fills the port's buffer within milliseconds. */
static void more_streams(gl_engine *e, uint64_t now) {
    const unsigned streams = count_streams(e, now);
    if (streams <= e->streams) return;
    e->streams = streams;
    tell_all(e);
}

static void expect(gl_engine *e, unsigned rank, bool multicast, uint64_t now) {
    uint64_t *until = &e->peers[rank].active_until[multicast];
    if (rank != e->config.rank && *until < now + STREAM_IDLE) *until = now + STREAM_IDLE;
}

/* The operation tells who is going to send as its first sender does; before it is submitted here, it may be everybody. */
void expect_streams(gl_engine *e, const rx_message *first, uint64_t now) {
    const operation *o = first->operation;
    const bool multicast = first->flags & GL_FLAG_MULTICAST, pull = first->flags & GL_FLAG_PULL;
    for (const rx_message *m = o->early; m; m = m->next_early)
        if (m != first && !(m->flags & GL_FLAG_PULL) == !pull) return;
    for (const link *l = o->incoming; l; l = l->next)
        if (l->pull == pull && l->received && l->received != first) return;
    for (unsigned rank = 0; !o->planned && rank < e->config.workers; rank++) expect(e, rank, multicast, now);
    for (const link *l = o->incoming; l; l = l->next)
        if (l->pull == pull) expect(e, l->rank, multicast, now);
    more_streams(e, now);
}

/* The weight of the jobs that something comes in of; their `streams` are counted anew. */
static double count_jobs(gl_port *port, uint64_t now) {
    double weight = 0;
    for (gl_engine *e = port->engines; e; e = e->next_of_port) {
        const unsigned streams = count_streams(e, now);
        if (!streams) continue;
        weight += e->weight;
        e->streams = streams;
    }
    return weight;
}

/* Notes that a stream comes in. It is over with the last slice of its message, or when it falls silent; the next message's
 * first slice revives it. Returns whether the share was begun anew. */
static bool count_stream(gl_engine *e, peer *from, bool multicast, bool end, uint64_t now) {
    gl_port *port = e->port;
    const bool known = from->active_until[multicast] > now, job_known = now - e->heard <= STREAM_IDLE;
    from->active_until[multicast] = now + (end ? STREAM_IDLE / 4 : STREAM_IDLE);
    e->heard = now;
    if (known) return false;
    if (!job_known) e->streams = 0;
    more_streams(e, now);
    if (now - port->window_start > STREAM_IDLE) {
        port->weight = e->weight;
        port->share = USABLE * port->rate / port->weight;
        tell_all_jobs(port);
        return true;
    }
    if (!job_known) {
        double weight = 0;
        for (const gl_engine *o = port->engines; o; o = o->next_of_port)
            if (now - o->heard <= STREAM_IDLE) weight += o->weight;
        if (weight > port->weight) {
            port->share *= port->weight / weight;
            port->weight = weight;
            tell_all_jobs(port);
        }
    }
    return false;
}

/* What a weight of one is told, as in RCP (Dukkipati, 2007): it follows what the port has to spare, so streams that wait
 * for something else leave their part to the others; never below the equal part. */
static void share_port(gl_engine *e, peer *from, bool multicast, bool end, uint32_t bytes, uint64_t now) {
    gl_port *port = e->port;
    const double usable = USABLE * port->rate;
    if (count_stream(e, from, multicast, end, now)) {
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

/* Bytes that each stream of a job may have on its way, so that all of them fit into the sockets; at most. */
static uint32_t room_of(const gl_engine *e) {
    const gl_port *port = e->port;
    if (!port->receive_bytes) return UINT32_MAX;
    const double room = (double)port->receive_bytes * e->weight / port->weight / e->streams;
    return room < UINT32_MAX ? (uint32_t)room : UINT32_MAX;
}

/* Tells the sender how its stream gets through, and which part of this host's port is its. */
void report(gl_engine *e, unsigned source, const uint8_t *h, uint32_t bytes, bool congested, uint64_t now) {
    peer *from = &e->peers[source];
    const bool repair = (h[0] & 15) == GL_KIND_REPAIR, end = h[GL_AT_FLAGS] & GL_FLAG_END;
    const bool multicast = !repair && h[GL_AT_FLAGS] & GL_FLAG_MULTICAST; /* repairs are unicast */
    share_port(e, from, multicast, end, bytes + FRAME_OVERHEAD, now);
    incoming *in = &from->incoming[multicast];
    in->received++;
    in->marked += congested;
    e->statistics.ecn_marked += congested;
    gl_counts *c = counts_of(e, source, class_of(e, get16(h + GL_AT_LAYER)));
    c->ecn_marked += congested, c->bytes_received += bytes;
    if (!in->unreported++) in->since = now;
    const uint32_t room = room_of(e);
    const bool many = in->unreported >= REPORT_EVERY && now - in->reported_at >= REPORT_LEAST;
    if (!many && !end && !from->news[multicast] && now - in->since < REPORT_MOST &&
        (uint64_t)in->unreported * bytes < room / 4)
        return;
    in->unreported = 0, in->reported_at = now;
    from->news[multicast] = false;
    double share = e->port->share * e->weight / e->streams;
    if (share > USABLE * e->rate) share = USABLE * e->rate;
    uint8_t payload[GL_REPORT];
    put32(payload, in->received), put32(payload + 4, in->marked);
    put32(payload + 8, (uint32_t)(share * 8e3));
    put32(payload + 12, room), put32(payload + 16, repair), put32(payload + 20, (uint32_t)now);
    send_control(e, source, GL_KIND_REPORT, h, payload, sizeof payload);
    e->statistics.reports_sent++;
}
