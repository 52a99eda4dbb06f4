/* SPDX-License-Identifier: Apache-2.0
 *
 * A path's rate: additive increase and multiplicative decrease, on delay as Swift (SIGCOMM 2020) and on ECN marks and
 * losses as DCTCP (RFC 8257), around the share that the receiver tells (port.c).
 */
#include "internal.h"

static const double GAIN = 1.0 / 4;          /* of the congestion estimate */
static const double DELAY_GAIN = 0.4, DECREASE_MAX = 0.3;
static const double RECOVERY = 1.0 / 2;      /* of what a path is short of its share, each round */
static const double PROBING = 1.0 / 24;      /* of its share, to find what others leave */
static const double FLOOR = 1.0 / 4, CEILING = 1.25;
static const double HOST_NOISE = 3000;        /* us that busy hosts add to a round trip; queues shorter than that show in marks */

static const double BURST = 1;               /* of the queues' time: what one batch may carry of a path's rate */
static const uint64_t ROUND_MIN = 1000;      /* us */

/* One AIMD step a round trip. The rate falls by half of the smoothed fraction of marked and lost slices (DCTCP), or in
 * proportion to the delay in excess of the target (Swift), whichever is more. The shortest round trip of the round
 * counts: a busy host adds delay to single samples, a standing queue to all of them. */
static void adapt(gl_engine *e, path *p, const peer *from, uint32_t delivered, uint32_t congested, uint64_t now) {
    p->round_delivered += delivered, p->round_congested += congested;
    if (now < p->round_end) return;
    const uint32_t total = p->round_delivered + p->round_congested;
    if (total) {
        double fraction = (double)p->round_congested / total;
        if (fraction > 1) fraction = 1;
        p->congestion += GAIN * (fraction - p->congestion);
        double decrease = p->round_congested ? p->congestion / 2 : 0;
        const double target = from->base_rtt + (e->queue_time > HOST_NOISE ? e->queue_time : HOST_NOISE);
        if (p->round_rtt != UINT32_MAX && p->round_rtt > target) {
            double excess = DELAY_GAIN * (p->round_rtt - target) / p->round_rtt;
            if (excess > DECREASE_MAX) excess = DECREASE_MAX;
            if (excess > decrease) decrease = excess;
        }
        if (decrease > 0)
            p->rate *= 1 - decrease;
        else
            p->rate += p->rate < p->share ? (p->share - p->rate) * RECOVERY + p->share * PROBING : p->share * PROBING;
        if (p->rate < p->share * FLOOR) p->rate = p->share * FLOOR;
        if (p->rate > p->share * CEILING) p->rate = p->share * CEILING;
        if (p->rate > e->rate) p->rate = e->rate;
    }
    p->round_delivered = p->round_congested = 0;
    p->round_rtt = UINT32_MAX;
    p->round_end = now + (from->srtt > ROUND_MIN ? from->srtt : ROUND_MIN);
}

/* The share that the narrowest of a path's receivers leaves it; a change keeps what congestion has made of the rate. */
static void take_share(gl_engine *e, path *p) {
    double share = e->rate;
    for (unsigned rank = 0; rank < e->ranks; rank++) {
        const double told = e->peers[rank].feedback[p->multicast].share;
        if ((p->multicast || p == &e->paths[rank]) && told && told < share) share = told;
    }
    p->rate *= share / p->share;
    p->share = share;
}

/* What was told before a pause is about streams of then. */
static void forget_share(gl_engine *e, path *p) {
    for (unsigned rank = 0; rank < e->ranks; rank++)
        if (p->multicast || p == &e->paths[rank]) e->peers[rank].feedback[p->multicast].share = 0;
    p->rate *= p->initial / p->share;
    p->share = p->initial;
}

void on_report(gl_engine *e, unsigned source, const uint8_t *h, const uint8_t *payload, uint64_t now) {
    peer *from = &e->peers[source];
    const bool multicast = h[GL_AT_FLAGS] & GL_FLAG_MULTICAST;
    path *p = &e->paths[multicast ? e->ranks : source];
    feedback *f = &from->feedback[multicast];
    const uint32_t received = get32(payload), marked = get32(payload + 4);
    const int32_t delivered = (int32_t)(received - f->received);
    if (delivered <= 0) return; /* reordered: a newer report has been here */
    uint32_t congested = marked - f->marked;
    tx_message *m = find_sent(e, get32(h + GL_AT_MESSAGE));
    const uint16_t slice = get16(h + GL_AT_SLICE);
    if (m && slice < m->slices && m->sent_at[slice] && m->path == p) {
        const uint32_t sample = (uint32_t)now - m->sent_at[slice];
        from->srtt = (7 * from->srtt + sample) / 8;
        if (sample < from->base_rtt) from->base_rtt = sample;
        if (sample < p->round_rtt) p->round_rtt = sample;
        const int32_t missing = (int32_t)(m->path_sequence[slice] + 1 - received);
        if (missing > f->missing) congested += (uint32_t)(missing - f->missing);
        f->missing = missing;
        target *t = find_target(m, source);
        if (t && !t->stopped && m->sent == m->slices) arm_probe(e, t, now);
    }
    f->received = received, f->marked = marked;
    f->share = (double)get32(payload + 8) / 8e3;
    if (f->share) take_share(e, p);
    adapt(e, p, from, (uint32_t)delivered, congested, now);
}

/* When the next batch is due. A late wake-up may be made good by sending faster, up to what queues are to hold. */
uint64_t advance(const gl_engine *e, uint64_t next, uint64_t now, double bytes, double rate) {
    const uint64_t credit = (uint64_t)(e->queue_time / 2);
    const uint64_t from = next + credit > now ? next : now - credit;
    return from + (uint64_t)(bytes / rate);
}

/* A step starts at all workers at once: their slices are to meet evenly spaced, not all together, at a shallow port. */
static uint64_t phase(const gl_engine *e, const path *p) {
    return (uint64_t)((FRAME_OVERHEAD + GL_HEADER + e->config.slice_bytes) / p->rate * e->config.rank / e->ranks);
}

void path_begin(gl_engine *e, path *p, uint64_t now) {
    p->busy = true;
    if (now - p->idle_since > STREAM_IDLE) forget_share(e, p);
    /* Credit for late wake-ups is not for what was never late. */
    if (p->next_send < now) p->next_send = now + phase(e, p);
}

unsigned path_burst(const gl_engine *e, const path *p) {
    const unsigned limit = (unsigned)(p->rate * e->queue_time * BURST / (GL_HEADER + e->config.slice_bytes));
    return limit < 1 ? 1 : limit > GL_BATCH ? GL_BATCH : limit;
}
