/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A flow's account: what is in flight, what its receivers leave it, and when its next batch is due. How its rate follows
 * congestion is up to its controller.
 */
#include "rate/flow.h"

#include <stdlib.h>

#include "base/batch.h"
#include "rate/pacing.h"

static const double HELD = 7.0 / 8;  /* of its share: a flow below that is held */
static const uint64_t STALL = 25000; /* us, and the shortest round trip, without a REPORT: what is in flight is lost */

enum { ASKED_MOST = 16 }; /* times in a STALL */

bool flow_new(flow *f, const uplink *uplink, unsigned receivers) {
    f->uplink = uplink;
    f->share = f->rate = uplink->rate;
    f->room = UINT32_MAX;
    f->rtt = f->srtt = INITIAL_RTT;
    f->receivers = calloc(receivers, sizeof *f->receivers);
    f->receiver_count = receivers;
    f->state = calloc(1, uplink->controller->bytes);
    if (!f->receivers || !f->state) return false;
    uplink->controller->start(f);
    return true;
}

void flow_free(flow *f) { free(f->receivers), free(f->state); }

static void set_share(flow *f, double share) { f->uplink->controller->share(f, share); }

/* The share and the room of the narrowest of a flow's receivers. */
static void take_share(flow *f) {
    double share = f->uplink->rate;
    f->room = UINT32_MAX;
    for (const receiver *r = f->receivers; r < f->receivers + f->receiver_count; r++) {
        if (!r->share) continue;
        if (r->share < share) share = r->share;
        if (r->room < f->room) f->room = r->room;
    }
    set_share(f, share);
}

/* What was told before a pause is about streams of then. Until they tell, the others are taken for hosts like this one.
 * `part` of a link is what the flow may take at first. */
static void begin_anew(flow *f, double part) {
    const uplink *u = f->uplink;
    for (unsigned i = 0; i < f->receiver_count; i++) f->receivers[i].share = 0;
    set_share(f, u->rate * part);
    const double room = room_at(u->rate, u->receive_bytes, 1 / part) * part;
    f->room = u->receive_bytes && room < UINT32_MAX ? (uint32_t)room : UINT32_MAX;
    f->acknowledged = f->sequence;
}

/* A step starts at all workers at once: their slices are to meet evenly spaced, not all together, at a shallow port. Those of a
 * host that sends to as many as meet are spaced by its own port, in the order of its round. */
static uint64_t phase(const flow *f) {
    return (uint64_t)((FRAME_OVERHEAD + f->uplink->datagram) / f->rate * f->uplink->rank / f->uplink->ranks);
}

void flow_begin(flow *f, uint64_t idle, unsigned meeting, bool alone, uint64_t now) {
    /* The collective's pattern tells how many flows meet, so that their sum at every port is the link's rate. */
    const double part = 1.0 / meeting;
    f->uplink->controller->begin(f, idle, now);
    if (idle > STREAM_IDLE)
        begin_anew(f, part);
    else if (idle > REPORT_MOST && f->share > f->uplink->rate * part)
        set_share(f, f->uplink->rate * part); /* others that had ended may begin with it */
    /* Credit for late wake-ups is not for what was never late. */
    if (f->next_send < now) f->next_send = now + (alone ? phase(f) : 0);
}

/* Bytes that may be in flight: at least so much that REPORTs come of it, and no more than the receiver has room for. */
static double window(const flow *f) {
    const double slice = f->uplink->datagram;
    double bytes = f->uplink->controller->window(f);
    if (bytes > f->room) bytes = f->room;
    return bytes > 2 * REPORT_EVERY * slice ? bytes : 2 * REPORT_EVERY * slice;
}

bool flow_full(const flow *f) {
    return (double)(f->sequence - f->acknowledged) * f->uplink->datagram >= window(f);
}

static uint64_t lost_at(const flow *f) { return f->progress_at + f->rtt + STALL; }

/* A question overtakes slices that still queue, so it waits for the queues that the rate control allows. It may be lost, too, or
 * its answer. */
static uint64_t silence(const flow *f) {
    const uint64_t patience = 3 * (uint64_t)f->srtt + (uint64_t)f->uplink->queue_time;
    if (!f->asked) return (f->sent_at > f->progress_at ? f->sent_at : f->progress_at) + patience;
    const uint64_t again = f->asked_at + (patience << f->asked);
    return f->asked < ASKED_MOST && again < lost_at(f) ? again : lost_at(f);
}

bool flow_asks(const flow *f, uint64_t now) {
    return flow_full(f) && (!f->asked || (f->asked < ASKED_MOST && now < lost_at(f)));
}

void flow_asked(flow *f, uint64_t now) { f->asked++, f->asked_at = now; }

uint64_t flow_due(const flow *f) {
    const uint64_t least = flow_full(f) ? silence(f) : 0;
    return least > f->next_send ? least : f->next_send;
}

void flow_give_up(flow *f) {
    f->acknowledged = f->sequence;
    f->asked = 0;
    f->uplink->controller->stall(f);
}

bool flow_open(flow *f, uint64_t now) {
    if (now < flow_due(f)) return false;
    if (flow_full(f)) flow_give_up(f);
    if (f->acknowledged == f->sequence) f->progress_at = now;
    return true;
}

unsigned uplink_burst(const uplink *u, double rate, uint64_t due, uint64_t now) {
    const double queue = u->queue_time < 2 * BURST ? u->queue_time : 2 * BURST, ahead = due > now ? (double)(due - now) : 0;
    const double left = queue > ahead ? queue - ahead : 0, bytes = rate * (left < BURST ? left : BURST);
    const unsigned limit = (unsigned)((bytes < GL_BATCH_BYTES ? bytes : GL_BATCH_BYTES) / u->datagram);
    return limit < 1 ? 1 : limit > GL_BATCH ? GL_BATCH : limit;
}

void flow_sent(flow *f, double bytes, uint64_t now) {
    f->next_send = next_due(f->uplink->queue_time, f->next_send, now, bytes, f->rate);
    f->sent_at = now;
}

void flow_acknowledge(flow *f, receiver *by, uint32_t sequence, uint64_t now) {
    if ((int32_t)(sequence - by->acknowledged) <= 0) return;
    by->acknowledged = sequence;
    for (const receiver *r = f->receivers; r < f->receivers + f->receiver_count; r++)
        if (r->awaited && (int32_t)(r->acknowledged - sequence) < 0) sequence = r->acknowledged;
    if ((int32_t)(sequence - f->acknowledged) <= 0) return;
    f->acknowledged = sequence;
    f->asked = 0;
    f->progress_at = now;
}

/* What is missing that was not before. */
static uint32_t newly_missing(receiver *by, int32_t missing) {
    if (missing <= by->missing) return 0;
    const uint32_t more = (uint32_t)(missing - by->missing);
    by->missing = missing;
    return more;
}

bool flow_report(flow *f, receiver *by, rtt *to, const report *r, uint64_t now) {
    const int32_t delivered = (int32_t)(r->received - by->received);
    if (delivered <= 0) return false; /* reordered: a newer report has been here */
    f->delivered += (uint64_t)delivered;
    if (f->rate < f->share * HELD) f->held += (uint64_t)delivered;
    progress p = {.delivered = (uint32_t)delivered, .marked = newly_marked(by, r), .queue = NO_QUEUE};
    if (r->known) {
        p.queue = rtt_sample(to, r->rtt, r->there, f->competes, now);
        f->srtt = to->srtt;
        if (p.queue != NO_QUEUE) f->rtt = rtt_shortest(to);
        p.missing = newly_missing(by, (int32_t)(r->sequence + 1 - r->received));
        p.sequence = r->sequence;
        flow_acknowledge(f, by, r->sequence + 1, now);
    }
    by->received = r->received, by->marked = r->marked;
    by->share = r->share, by->room = r->room;
    if (by->share) take_share(f);
    f->uplink->controller->report(f, to, &p, now);
    return true;
}
