/* SPDX-License-Identifier: Apache-2.0
 *
 * A path's rate and window. The rate falls on delay as Swift's (SIGCOMM 2020) and on ECN marks and on losses that no budget
 * covers as DCTCP's (RFC 8257), and rises again as DCQCN's (SIGCOMM 2015), up to the share that the receiver tells (port.c).
 * Beside flows that only losses slow down it is Reno's, as Copa's (NSDI 2018).
 */
#include "engine/internal.h"

static const double GAIN = 1.0 / 16;         /* of the congestion estimate */
static const double DELAY_GAIN = 0.4, DECREASE_MAX = 0.3;
static const double LOSS_DECREASE = 1.0 / 8; /* of the rate, at least, where a loss is an alarm */
static const double LOSS_NOISE = 1.0 / 16;   /* of the slices: fewer losses without a queue are no alarm */
static const double DRAINING = 15.0 / 16;    /* of the round before: a queue that is shorter than that is on its way down */
static const double RECOVERY = 1.0 / 2;      /* of what a path is short of its goal, each round */
static const double CALM = 3;                /* rounds without congestion until the goal rises */
static const double PROBING = 1.0 / 64;      /* of the share, what it rises by in a round */
static const double HURRY = 32;              /* calm rounds after which it rises by as much again */
static const uint32_t STANDING = 32;         /* rounds in succession with too long a queue: slowing down does not drain it */
static const uint32_t DRAINED = 4;           /* rounds with a short queue, more or less: it does not stand any more */
static const double STEADY = 1.0 / 8;        /* of the queue time: what varies by less all the while is no queue */
static const double ALONE = 192;             /* rounds beside such flows without a loss: there are none */
static const double FLOOR = 1.0 / 16;        /* of the share, at least */
static const double HOST_NOISE = 3000;       /* us that busy hosts add to a way; queues shorter than that show in marks */
static const double BURST = 500;             /* us of a path's rate that one batch may carry, if the queue time is not shorter */
static const uint64_t ROUND_MIN = 1000;      /* us */
static const uint64_t STALL = 25000;         /* us, and the shortest round trip, without a REPORT: what is on its way is lost */
static const uint32_t RTT_MAX = 100000;      /* us, at most; a host that slept is no queue */
static const uint64_t BASE_LIFE = 1000000;   /* us: shortest delays are forgotten after one to two of these */
static const uint64_t REST_MOST = 16000;     /* us that a path rests in a BASE_LIFE, at most */

/* us of queueing on the way there that are no alarm */
static double allowance(const gl_engine *e) { return e->queue_time / 2 > HOST_NOISE ? e->queue_time / 2 : HOST_NOISE; }

static uint32_t base_rtt(const peer *from) {
    return from->base[0] < from->base[1] ? from->base[0] : from->base[1];
}

/* us in which a port sends all that it holds. A queue that stands would pass for a longer way, so once in a BASE_LIFE a path
 * sends nothing for so long, if it did not anyway: as BBR (CACM 2017) and LEDBAT++ do. */
static double rest_of(const gl_engine *e) { return 2 * e->queue_time < REST_MOST ? 2 * e->queue_time : REST_MOST; }

static void rest(const gl_engine *e, path *p, uint64_t now) {
    if (p->competes || now - p->rested < BASE_LIFE) return;
    p->rested = now;
    p->next_send = (p->next_send > now ? p->next_send : now) + (uint64_t)rest_of(e);
}

/* The way is not what it was. */
static void measure_anew(path *p, peer *from) {
    from->base_until = 0;
    p->competes = false, p->late = 0, p->calm = 0;
}

/* Whether a path is beside flows that only losses slow down: a queue stands that slowing down has not drained (Copa, NSDI
 * 2018). Such a queue grows and shrinks; a delay that stays the same while the rate falls is that of a longer way. It does not
 * stand any more when it was short in several rounds; a loss of all together drains it for one or two. */
static void judge(const gl_engine *e, path *p, peer *from, double queue) {
    if (queue > allowance(e)) {
        if (p->late <= STANDING / 4 || queue < p->least) p->least = queue;
        if (p->late <= STANDING / 4 || queue > p->most) p->most = queue;
        p->late += p->late < STANDING;
    } else if (!p->competes) {
        p->late = 0;
    } else if (queue < allowance(e) / 2) {
        p->late -= p->late < STANDING / DRAINED ? p->late : STANDING / DRAINED;
    }
    if (!p->late) p->competes = false;
    if (p->late < STANDING || p->competes) return;
    if (p->most - p->least < e->queue_time * STEADY)
        measure_anew(p, from);
    else
        p->competes = true, p->goal = e->rate;
}

static void limit_rate(const gl_engine *e, path *p) {
    const double most = p->share < e->rate ? p->share : e->rate, least = p->share * FLOOR;
    if (p->goal > most) p->goal = most;
    if (p->rate > most) p->rate = most;
    if (p->rate < least) p->rate = least;
    if (p->goal < p->rate) p->goal = p->rate;
}

static void decrease(const gl_engine *e, path *p, double part) {
    p->goal = p->rate * (1 - part / 2);
    p->rate *= 1 - part;
    p->calm = 0;
    limit_rate(e, p);
}

/* `rounds`: that have passed since the last step; slow paths hear of themselves less often. */
static void increase(const gl_engine *e, path *p, double rounds) {
    p->calm += rounds;
    if (p->calm > CALM) p->goal += p->share * PROBING * rounds * (1 + p->calm / HURRY);
    limit_rate(e, p);
    p->rate += (p->goal - p->rate) * RECOVERY;
}

/* Beside flows that only losses slow down: Reno's slow start, window and halving, which CUBIC's are made to match on short
 * paths (RFC 9438, 4.3), as a rate. */
static void compete(const gl_engine *e, path *p, peer *from, double rounds) {
    p->calm += rounds;
    if (p->round_lost || p->round_marked)
        p->rate /= 2, p->goal = p->rate, p->backed_off = p->sequence, p->calm = 0;
    else if (p->rate < p->goal)
        p->rate *= 2;
    else
        p->rate += rounds * (GL_HEADER + e->config.slice_bytes) / from->srtt, p->goal = p->rate;
    limit_rate(e, p);
    if (p->calm > ALONE) measure_anew(p, from);
}

/* What is to be taken off the rate after a round: half of the smoothed fraction of congested slices, or in proportion to the
 * delay in excess of what is allowed, whichever is more. The shortest queue of the round counts: a busy host adds delay to
 * single samples, a standing queue to all of them. */
static double excess(const gl_engine *e, path *p, peer *from) {
    const uint32_t total = p->round_delivered + p->round_lost;
    const bool timed = p->round_queue != UINT32_MAX;
    const double queue = timed ? p->round_queue : 0;
    const bool alarm = queue > e->queue_time / 2 || p->round_lost >= total * LOSS_NOISE;
    const uint32_t lost = alarm ? p->round_lost : 0, congested = p->round_marked + lost;
    p->congestion += GAIN * ((double)congested / total - p->congestion);
    double part = congested ? p->congestion / 2 : 0;
    if (lost && part < LOSS_DECREASE) part = LOSS_DECREASE;
    if (queue > allowance(e)) {
        double late = DELAY_GAIN * (queue - allowance(e)) / (base_rtt(from) + queue);
        if (late > DECREASE_MAX) late = DECREASE_MAX;
        if (late > part) part = late;
    }
    /* What is too fast no more need not be slowed as much. */
    if (!lost && timed && queue < p->last_queue * DRAINING) part /= 2;
    if (timed) p->last_queue = queue, judge(e, p, from, queue);
    return part;
}

/* One step a round trip. */
static void adapt(gl_engine *e, path *p, peer *from, uint64_t now) {
    if (now < p->round_end || !(p->round_delivered + p->round_lost)) return;
    const double round = from->srtt > ROUND_MIN ? from->srtt : ROUND_MIN, part = excess(e, p, from);
    double rounds = 1 + (double)(now - p->round_end) / round;
    if (rounds > CALM) rounds = CALM;
    if (p->competes)
        compete(e, p, from, rounds);
    else if (part > 0)
        decrease(e, p, part);
    else
        increase(e, p, rounds);
    p->round_delivered = p->round_marked = p->round_lost = 0;
    p->round_queue = UINT32_MAX;
    p->round_end = now + (uint64_t)round;
    rest(e, p, now);
}

/* A path that the receiver's port limits follows its share; one that is slower for congestion comes after it round by round. */
static void set_share(const gl_engine *e, path *p, double share) {
    const double change = share / p->share;
    if (p->goal >= p->share) p->rate *= change;
    p->goal *= change;
    p->share = share;
    limit_rate(e, p);
}

/* The share and the room of the narrowest of a path's receivers. */
static void take_share(gl_engine *e, path *p) {
    double share = e->rate;
    p->room = UINT32_MAX;
    for (unsigned rank = 0; rank < e->ranks; rank++) {
        const feedback *f = &e->peers[rank].feedback[p->multicast];
        if ((!p->multicast && p != &e->paths[rank]) || !f->share) continue;
        if (f->share < share) share = f->share;
        if (f->room < p->room) p->room = f->room;
    }
    set_share(e, p, share);
}

/* Of a link: what a path may take at first. The collective's pattern tells how many streams meet, so that their sum at every
 * port is the link's rate. */
static double first_part(const path *p) {
    const heap_item *first = heap_first(&p->messages);
    return first ? 1.0 / container_of(first, tx_message, turn)->link->meeting : 1;
}

/* What was told before a pause is about streams of then. Until they tell, the others are taken for hosts like this one. */
static void begin_anew(gl_engine *e, path *p) {
    for (unsigned rank = 0; rank < e->ranks; rank++)
        if (p->multicast || p == &e->paths[rank]) e->peers[rank].feedback[p->multicast].share = 0;
    set_share(e, p, e->rate * first_part(p));
    const double room = (double)e->port->receive_bytes * first_part(p);
    p->room = e->port->receive_bytes && room < UINT32_MAX ? (uint32_t)room : UINT32_MAX;
    p->acknowledged = p->sequence;
}

/* What was sent up to `sequence` has arrived at that receiver, or never will. */
static void acknowledge(gl_engine *e, path *p, feedback *f, uint32_t sequence, uint64_t now) {
    if ((int32_t)(sequence - f->acknowledged) <= 0) return;
    f->acknowledged = sequence;
    for (unsigned rank = 0; p->multicast && rank < e->config.workers; rank++) {
        const uint32_t its = e->peers[rank].feedback[1].acknowledged;
        if (rank != e->config.rank && (int32_t)(its - sequence) < 0) sequence = its;
    }
    if ((int32_t)(sequence - p->acknowledged) <= 0) return;
    p->acknowledged = sequence;
    p->progress_at = now;
}

/* Of new losses before `sequence`, those that no budget covers. A path earns its budget with what it sends: that much is no
 * alarm, except to flows that every loss slows down; these slow down once for all that was on its way. */
static uint32_t alarming(path *p, feedback *f, int32_t missing, uint32_t sequence) {
    if (missing <= f->missing) return 0;
    const uint32_t lost = (uint32_t)(missing - f->missing);
    f->missing = missing;
    if (p->competes) return (int32_t)(sequence - p->backed_off) > 0 ? lost : 0;
    const uint32_t covered = p->covered < lost ? (uint32_t)p->covered : lost;
    p->covered -= covered;
    return lost - covered;
}

/* `there`: when it arrived by the receiver's clock less when it was sent by ours. The queue is what this is above the least of
 * late, in which two clocks hardly drift apart; for a queue on the way back is not this path's. */
static void take_sample(peer *from, path *p, uint32_t sample, uint32_t there, uint64_t now) {
    from->srtt = (7 * from->srtt + (sample < RTT_MAX ? sample : RTT_MAX)) / 8;
    if (sample > RTT_MAX) return;
    if (now >= from->base_until) {
        const bool outdated = now >= from->base_until + BASE_LIFE;
        from->base[1] = outdated ? sample : from->base[0], from->base[0] = sample;
        from->there[1] = outdated ? there : from->there[0], from->there[0] = there;
        from->base_until = now + BASE_LIFE;
    }
    if (p->competes) from->base_until = now + BASE_LIFE; /* the queue that others hold hides the way */
    if (sample < from->base[0]) from->base[0] = sample;
    if ((int32_t)(there - from->there[0]) < 0) from->there[0] = there;
    p->rtt = base_rtt(from);
    const bool older = (int32_t)(from->there[1] - from->there[0]) < 0;
    const uint32_t queue = there - from->there[older];
    if (queue < p->round_queue) p->round_queue = queue;
}

void on_report(gl_engine *e, unsigned source, const uint8_t *h, const uint8_t *payload, uint64_t now) {
    peer *from = &e->peers[source];
    const bool repair = get32(payload + 16), multicast = !repair && h[GL_AT_FLAGS] & GL_FLAG_MULTICAST;
    path *p = &e->paths[multicast ? e->ranks : source];
    feedback *f = &from->feedback[multicast];
    const uint32_t received = get32(payload), marked = get32(payload + 4);
    const int32_t delivered = (int32_t)(received - f->received);
    if (delivered <= 0) return; /* reordered: a newer report has been here */
    p->round_delivered += (uint32_t)delivered, p->round_marked += marked - f->marked;
    tx_message *m = find_sent(e, get32(h + GL_AT_MESSAGE));
    target *t = m ? find_target(m, source) : NULL;
    const uint16_t slice = get16(h + GL_AT_SLICE);
    if (t && slice < m->slices && (repair ? t->repaired_at && t->repaired_at[slice] : m->sent_at[slice] && m->path == p)) {
        const uint32_t sequence = repair ? t->repair_sequence[slice] : m->path_sequence[slice];
        const uint32_t sent_at = repair ? t->repaired_at[slice] : m->sent_at[slice];
        take_sample(from, p, (uint32_t)now - sent_at, get32(payload + 20) - sent_at, now);
        p->round_lost += alarming(p, f, (int32_t)(sequence + 1 - received), sequence);
        acknowledge(e, p, f, sequence + 1, now);
        if (!t->stopped && (m->link->exact ? m->sent == m->ready : m->sent == m->slices)) arm_probe(e, t, now);
    }
    f->received = received, f->marked = marked;
    f->share = (double)get32(payload + 8) / 8e3;
    f->room = get32(payload + 12);
    if (f->share) take_share(e, p);
    adapt(e, p, from, now);
}

void path_stopped(gl_engine *e, const tx_message *m, unsigned source, uint64_t now) {
    if (m->sent) acknowledge(e, m->path, &e->peers[source].feedback[m->path->multicast], m->last_sequence + 1, now);
}

/* Bytes that may be on their way: what the rate carries in a round trip with an allowed queue, at least so much that REPORTs
 * come of it, and no more than the receiver has room for. */
static double window(const gl_engine *e, const path *p) {
    const double slice = GL_HEADER + e->config.slice_bytes;
    const double queue = e->queue_time * (p->competes ? 2 : 1);
    double bytes = p->rate * (p->rtt + (queue > HOST_NOISE ? queue : HOST_NOISE));
    if (bytes > p->room) bytes = p->room;
    return bytes > 2 * REPORT_EVERY * slice ? bytes : 2 * REPORT_EVERY * slice;
}

static bool is_full(const gl_engine *e, const path *p) {
    return (double)(p->sequence - p->acknowledged) * (GL_HEADER + e->config.slice_bytes) >= window(e, p);
}

uint64_t path_due(const gl_engine *e, const path *p) {
    if (!is_full(e, p)) return p->next_send;
    const uint64_t given_up = p->progress_at + p->rtt + STALL;
    return given_up > p->next_send ? given_up : p->next_send;
}

bool path_open(gl_engine *e, path *p, uint64_t now) {
    if (now < path_due(e, p)) return false;
    if (is_full(e, p)) {
        p->acknowledged = p->sequence;
        decrease(e, p, 0.5);
    }
    if (p->acknowledged == p->sequence) p->progress_at = now;
    return true;
}

/* When the next batch is due. A late wake-up may be made good by sending faster, up to what queues are to hold. */
uint64_t next_due(double queue_time, uint64_t next, uint64_t now, double bytes, double rate) {
    const uint64_t credit = (uint64_t)(queue_time / 2);
    const uint64_t from = next + credit > now ? next : now - credit;
    return from + (uint64_t)(bytes / rate);
}

/* A step starts at all workers at once: their slices are to meet evenly spaced, not all together, at a shallow port. */
static uint64_t phase(const gl_engine *e, const path *p) {
    return (uint64_t)((FRAME_OVERHEAD + GL_HEADER + e->config.slice_bytes) / p->rate * e->config.rank / e->ranks);
}

void path_begin(gl_engine *e, path *p, uint64_t now) {
    p->busy = true;
    const uint64_t idle = now - p->idle_since;
    if (idle > rest_of(e)) p->rested = now;
    if (idle > STREAM_IDLE)
        begin_anew(e, p);
    else if (idle > REPORT_MOST && p->share > e->rate * first_part(p))
        set_share(e, p, e->rate * first_part(p)); /* others that had ended may begin with it */
    /* Credit for late wake-ups is not for what was never late. */
    if (p->next_send < now) p->next_send = now + phase(e, p);
}

unsigned path_burst(const gl_engine *e, const path *p) {
    const double bytes = p->rate * (e->queue_time < BURST ? e->queue_time : BURST);
    const double most = bytes < GL_BATCH_BYTES ? bytes : GL_BATCH_BYTES;
    const unsigned limit = (unsigned)(most / (GL_HEADER + e->config.slice_bytes));
    return limit < 1 ? 1 : limit > GL_BATCH ? GL_BATCH : limit;
}

void path_earn(path *p, const tx_message *m) {
    if (!m->budget) return;
    p->covered += (double)m->budget / m->slices;
    if (p->covered > m->budget) p->covered = m->budget;
}
