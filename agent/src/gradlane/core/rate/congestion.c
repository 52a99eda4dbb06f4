/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The congestion controller. The rate falls on delay as Swift's (SIGCOMM 2020) and on ECN marks and on losses that no budget
 * covers as DCTCP's (RFC 8257), and rises again as DCQCN's (SIGCOMM 2015), up to the share that the receiver tells (share.c).
 * Beside flows that only losses slow down it is Reno's, as Copa's (NSDI 2018).
 */
#include "rate/flow.h"
#include "rate/pacing.h"

static const double GAIN = 1.0 / 16;         /* of the congestion estimate */
static const double DELAY_GAIN = 0.4, DECREASE_MAX = 0.3;
static const double LOSS_DECREASE = 1.0 / 8; /* of the rate, at least, where a loss is an alarm */
static const double LOSS_NOISE = 1.0 / 16;   /* of the slices: fewer losses without a queue are no alarm */
static const double DRAINING = 15.0 / 16;    /* of the round before: a queue that is shorter than that is on its way down */
static const double RECOVERY = 1.0 / 2;      /* of what a flow is short of its goal, each round */
static const double CALM = 3;                /* rounds without congestion until the goal rises */
static const double PROBING = 1.0 / 64;      /* of the share, what it rises by in a round */
static const double HURRY = 32;              /* calm rounds after which it rises by as much again */
static const uint32_t STANDING = 32;         /* rounds in succession with too long a queue: slowing down does not drain it */
static const uint32_t DRAINED = 4;           /* rounds with a short queue, more or less: it does not stand any more */
static const double STEADY = 1.0 / 8;        /* of the queue time: what varies by less all the while is no queue */
static const double ALONE = 192;             /* rounds beside such flows without a loss: there are none */
static const double FLOOR = 1.0 / 16;        /* of the share, at least */
static const double HOST_NOISE = 3000;       /* us that busy hosts add to a path; queues shorter than that show in marks */
static const double MEETINGS = 2;            /* that a slice may have with one of each other flow on its path, by chance */
static const uint64_t ROUND_MIN = 1000;      /* us */
static const uint64_t REST_MOST = 16000;     /* us that a flow rests in a BASE_LIFE, at most */

/* Of one flow. */
typedef struct {
    double goal;                  /* where the rate was before the last congestion, or where it probes for more */
    double congestion;            /* DCTCP's alpha */
    double last_queue;            /* that of the round before */
    double calm;                  /* rounds without congestion */
    uint64_t rested;              /* when it last had sent nothing for as long as a queue takes to drain */
    uint32_t late;                /* rounds with too long a queue, up to STANDING; those with a short one are taken off */
    double least, most;           /* queues of the latest of them, us */
    uint32_t backed_off;          /* the first slice after the last decrease beside flows that only losses slow down */
    uint32_t delivered, marked, lost, queue; /* of this round; queue: us, the shortest, or NO_QUEUE */
    uint64_t round_end;
} state;

/* us of queueing on the path there that are no alarm. Where many slow flows meet, so many of their slices may wait for one
 * another by chance, at each port: as Swift's target does, this grows with their number, which the share tells. */
static double allowance(const flow *f) {
    const uplink *u = f->uplink;
    const double meeting = MEETINGS * (FRAME_OVERHEAD + u->datagram) / f->share;
    const double queue = meeting > u->queue_time ? u->queue_time : meeting > u->queue_time / 2 ? meeting : u->queue_time / 2;
    return queue > HOST_NOISE ? queue : HOST_NOISE;
}

/* us in which a port sends all that it holds. A queue that stands would pass for a longer path, so once in a BASE_LIFE a flow
 * sends nothing for so long, if it did not anyway: as BBR (CACM 2017) and LEDBAT++ do. */
static double rest_of(const uplink *u) { return 2 * u->queue_time < REST_MOST ? 2 * u->queue_time : REST_MOST; }

static void rest(flow *f, state *s, uint64_t now) {
    if (f->competes || now - s->rested < BASE_LIFE) return;
    s->rested = now;
    f->next_send = (f->next_send > now ? f->next_send : now) + (uint64_t)rest_of(f->uplink);
}

/* The path is not what it was. */
static void measure_anew(flow *f, state *s, rtt *to) {
    rtt_forget(to);
    f->competes = false, s->late = 0, s->calm = 0;
}

/* Whether a flow is beside flows that only losses slow down: a queue stands that slowing down has not drained (Copa, NSDI
 * 2018). Such a queue grows and shrinks; a delay that stays the same while the rate falls is that of a longer path. It does
 * not stand any more when it was short in several rounds; a loss of all together drains it for one or two. */
static void judge(flow *f, state *s, rtt *to, double queue) {
    const uplink *u = f->uplink;
    if (queue > allowance(f)) {
        if (s->late <= STANDING / 4 || queue < s->least) s->least = queue;
        if (s->late <= STANDING / 4 || queue > s->most) s->most = queue;
        s->late += s->late < STANDING;
    } else if (!f->competes) {
        s->late = 0;
    } else if (queue < allowance(f) / 2) {
        s->late -= s->late < STANDING / DRAINED ? s->late : STANDING / DRAINED;
    }
    if (!s->late) f->competes = false;
    if (s->late < STANDING || f->competes) return;
    if (s->most - s->least < u->queue_time * STEADY)
        measure_anew(f, s, to);
    else
        f->competes = true, s->goal = u->rate;
}

static void limit_rate(flow *f, state *s) {
    const double most = f->share < f->uplink->rate ? f->share : f->uplink->rate, least = f->share * FLOOR;
    if (s->goal > most) s->goal = most;
    if (f->rate > most) f->rate = most;
    if (f->rate < least) f->rate = least;
    if (s->goal < f->rate) s->goal = f->rate;
}

static void decrease(flow *f, state *s, double part) {
    s->goal = f->rate * (1 - part / 2);
    f->rate *= 1 - part;
    s->calm = 0;
    limit_rate(f, s);
}

/* `rounds`: that have passed since the last step; slow flows hear of themselves less often. */
static void increase(flow *f, state *s, double rounds) {
    s->calm += rounds;
    if (s->calm > CALM) s->goal += f->share * PROBING * rounds * (1 + s->calm / HURRY);
    limit_rate(f, s);
    f->rate += (s->goal - f->rate) * RECOVERY;
}

/* Beside flows that only losses slow down: Reno's slow start, window and halving, which CUBIC's are made to match on short
 * paths (RFC 9438, 4.3), as a rate. */
static void compete(flow *f, state *s, rtt *to, double rounds) {
    s->calm += rounds;
    if (s->lost || s->marked)
        f->rate /= 2, s->goal = f->rate, s->backed_off = f->sequence, s->calm = 0;
    else if (f->rate < s->goal)
        f->rate *= 2;
    else
        f->rate += rounds * f->uplink->datagram / to->srtt, s->goal = f->rate;
    limit_rate(f, s);
    if (s->calm > ALONE) measure_anew(f, s, to);
}

/* What is to be taken off the rate after a round: half of the smoothed fraction of congested slices, or in proportion to the
 * delay in excess of what is allowed, whichever is more. The shortest queue of the round counts: a busy host adds delay to
 * single samples, a standing queue to all of them. */
static double excess(flow *f, state *s, rtt *to) {
    const uplink *u = f->uplink;
    const uint32_t total = s->delivered + s->lost;
    const bool timed = s->queue != NO_QUEUE;
    const double queue = timed ? s->queue : 0;
    const bool alarm = queue > u->queue_time / 2 || s->lost >= total * LOSS_NOISE;
    const uint32_t lost = alarm ? s->lost : 0, congested = s->marked + lost;
    s->congestion += GAIN * ((double)congested / total - s->congestion);
    double part = congested ? s->congestion / 2 : 0;
    if (lost && part < LOSS_DECREASE) part = LOSS_DECREASE;
    if (queue > allowance(f)) {
        double late = DELAY_GAIN * (queue - allowance(f)) / (rtt_shortest(to) + queue);
        if (late > DECREASE_MAX) late = DECREASE_MAX;
        if (late > part) part = late;
    }
    /* What is too fast no more need not be slowed as much. */
    if (!lost && timed && queue < s->last_queue * DRAINING) part /= 2;
    if (timed) s->last_queue = queue, judge(f, s, to, queue);
    return part;
}

/* One step a round trip. */
static void adapt(flow *f, state *s, rtt *to, uint64_t now) {
    if (now < s->round_end || !(s->delivered + s->lost)) return;
    const double round = to->srtt > ROUND_MIN ? to->srtt : ROUND_MIN, part = excess(f, s, to);
    double rounds = 1 + (double)(now - s->round_end) / round;
    if (rounds > CALM) rounds = CALM;
    if (f->competes)
        compete(f, s, to, rounds);
    else if (part > 0)
        decrease(f, s, part);
    else
        increase(f, s, rounds);
    s->delivered = s->marked = s->lost = 0;
    s->queue = NO_QUEUE;
    s->round_end = now + (uint64_t)round;
    rest(f, s, now);
}

/* Of new losses, those that no budget covers. A flow earns its budget with what it sends: that much is no alarm, except to
 * flows that every loss slows down; these slow down once for all that was in flight. */
static uint32_t alarming(flow *f, const state *s, uint32_t lost, uint32_t sequence) {
    if (f->competes) return (int32_t)(sequence - s->backed_off) > 0 ? lost : 0;
    const uint32_t covered = f->covered < lost ? (uint32_t)f->covered : lost;
    f->covered -= covered;
    return lost - covered;
}

static void on_start(flow *f) {
    state *s = f->state;
    s->goal = f->rate;
    s->queue = NO_QUEUE;
}

static void on_begin(flow *f, uint64_t idle, uint64_t now) {
    state *s = f->state;
    if (idle > rest_of(f->uplink)) s->rested = now;
}

/* A flow that the receiver's port limits follows its share; one that is slower for congestion comes after it round by round. */
static void on_share(flow *f, double share) {
    state *s = f->state;
    const double change = share / f->share;
    if (s->goal >= f->share) f->rate *= change;
    s->goal *= change;
    f->share = share;
    limit_rate(f, s);
}

static void on_report(flow *f, rtt *to, const progress *p, uint64_t now) {
    state *s = f->state;
    s->delivered += p->delivered, s->marked += p->marked;
    if (p->queue < s->queue) s->queue = p->queue;
    if (p->missing) s->lost += alarming(f, s, p->missing, p->sequence);
    adapt(f, s, to, now);
}

static void on_stall(flow *f) { decrease(f, f->state, 0.5); }

/* What the rate carries in a round trip with an allowed queue. */
static double window(const flow *f) {
    const double queue = f->uplink->queue_time * (f->competes ? 2 : 1);
    return f->rate * (f->rtt + (queue > HOST_NOISE ? queue : HOST_NOISE));
}

const controller delay_controller = {
    .bytes = sizeof(state),
    .start = on_start,
    .begin = on_begin,
    .share = on_share,
    .report = on_report,
    .stall = on_stall,
    .window = window,
};
