/* SPDX-License-Identifier: Apache-2.0
 *
 * A flow whose controller is another one: a constant rate, and a window that halves at a loss. Only base/ and rate/ are
 * linked to it.
 */
#undef NDEBUG
#include <assert.h>

#include "rate/flow.h"
#include "rate/pacing.h"

enum { DATAGRAM = 1000, ROUND_TRIP = 500 };

typedef struct {
    double window;
    unsigned reports, marked, stalls;
} state;

static void on_start(flow *f) { ((state *)f->state)->window = 40 * DATAGRAM; }

static void on_begin(flow *f, uint64_t idle, uint64_t now) { (void)f, (void)idle, (void)now; }

static void on_share(flow *f, double share) { f->share = f->rate = share; }

static void on_report(flow *f, rtt *to, const progress *p, uint64_t now) {
    state *s = f->state;
    (void)now;
    assert(rtt_shortest(to) == ROUND_TRIP && p->queue == 0 && p->delivered == 39);
    s->reports++, s->marked += p->marked;
    if (p->missing) s->window /= 2;
}

static void on_stall(flow *f) { ((state *)f->state)->stalls++; }

static double window(const flow *f) { return ((state *)f->state)->window; }

/* As often as it is time to, from `now` on. */
static void ask(flow *f, uint64_t now) {
    for (; flow_asks(f, now); now = flow_due(f)) flow_asked(f, now);
}

static const controller halving = {.bytes = sizeof(state), .start = on_start, .begin = on_begin, .share = on_share,
                                   .report = on_report, .stall = on_stall, .window = window};

int main(void) {
    const uplink u = {.rate = 1000, .queue_time = 100, .datagram = DATAGRAM, .ranks = 2, .controller = &halving};
    flow f = {0};
    rtt to = {0};
    uint64_t now = 1000000;
    rtt_start(&to);
    assert(flow_new(&f, &u, 1));
    const state *s = f.state;
    flow_begin(&f, now, 2, false, now);
    assert(f.rate == 500); /* another flow meets it, so each begins with half of the link */

    for (unsigned i = 0; i < 40; i++) {
        assert(flow_open(&f, now));
        f.sequence++, flow_sent(&f, DATAGRAM, now);
        now = flow_due(&f) > now ? flow_due(&f) : now;
        if (i < 39) assert(now == 1000000 + 2 * (i + 1)); /* 1000 bytes at 500 a microsecond */
    }
    /* The window is full: after three round trips and the queue time it is time to ask, and only a stall would open it. */
    assert(flow_full(&f) && now == 1000000 + 2 * 39 + 3 * INITIAL_RTT + 100);
    flow_asked(&f, now);
    assert(flow_due(&f) == now + 2 * (3 * INITIAL_RTT + 100) && flow_asks(&f, flow_due(&f)));
    ask(&f, now);
    assert(flow_due(&f) > 1000000 + 20000);

    const uint64_t heard = 1000000 + ROUND_TRIP;
    f.receivers[0].marked = MARKED_MASK - 3; /* it wraps */
    const report r = {.received = 39, .marked = 9, .share = 250, .room = UINT32_MAX, .known = true, .sequence = 39,
                      .rtt = ROUND_TRIP};
    assert(flow_report(&f, &f.receivers[0], &to, &r, heard) && !flow_report(&f, &f.receivers[0], &to, &r, heard));
    assert(!f.asked && s->reports == 1 && s->marked == 13 && s->window == 20 * DATAGRAM && f.rate == 250 && f.acknowledged == 40);
    assert(flow_open(&f, heard));

    for (unsigned i = 0; i < 20; i++) f.sequence++;
    ask(&f, heard);
    assert(!flow_open(&f, heard + 20000) && flow_open(&f, heard + 30000) && s->stalls == 1);
    flow_free(&f);
    return 0;
}
