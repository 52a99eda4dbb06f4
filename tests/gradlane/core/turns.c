/* SPDX-License-Identifier: Apache-2.0
 * Jobs of different threads at one port: whose turn it is, when one does not come, and times of a thread that is behind. */
#include "many_ranks.h"

#include "rate/pacing.h"
#include "rate/tenant.h"

enum { JOBS = 2, RANKS = 4, BATCH = 60000 };

static gl_port *port;
static tenant jobs[JOBS];

static void join(tenant *t) {
    *t = (tenant){.port = port, .rate = 1250, .queue_time = 400, .weight = 1, .ranks = RANKS};
    t->sharers = calloc(2 * RANKS, sizeof *t->sharers);
    require(t->sharers && heap_reserve(&t->active, 2 * RANKS), "memory");
    port_join(t);
}

/* When the port is free. */
static uint64_t free_at(uint64_t now) {
    const uint64_t at = port_free_at(port);
    return at > now ? at : now;
}

int main(void) {
    port = gl_port_new(0);
    require(port != NULL, "memory");
    for (unsigned k = 0; k < JOBS; k++) join(&jobs[k]);
    tenant *quick = &jobs[0], *busy = &jobs[1];
    uint64_t now = 1000000;

    /* Each in turn where both ask, however often the first does. */
    for (unsigned n = 0; n < 20; n++) {
        now = free_at(now);
        port_wait(busy, true);
        const bool first = port_take(quick, now);
        if (first) port_sent(quick, BATCH, true, now);
        now = free_at(now);
        require(first == !port_take(quick, now), "two turns of one while the other waits");
        require(port_take(busy, now), "it is not its turn");
        port_sent(busy, BATCH, true, now);
    }

    /* The thread of one does something else: the other waits, not for long, and from then on not at all. */
    now = free_at(now);
    while (port_take(quick, now)) port_sent(quick, BATCH, true, now), now = free_at(now);
    const uint64_t asked = now;
    while (!port_take(quick, now) && now < asked + 1000) now++;
    require(now > asked && now - asked <= 100, "it waits for whom is busy for another time");
    port_sent(quick, BATCH, true, now);
    for (unsigned n = 0; n < 20; n++) {
        now = free_at(now);
        require(port_take(quick, now), "it waits for whom is busy again");
        port_sent(quick, BATCH, true, now);
    }
    now = free_at(now);
    require(port_take(busy, now), "who comes back does not go first");
    port_sent(busy, BATCH, true, now);

    /* A thread that says an earlier time than another one has changes nothing that depends on time. */
    now += 100000;
    const double all = share_count(quick, 1, false, false, 1500, now + 20).share;
    const double half = share_count(busy, 1, false, false, 1500, now + 20).share;
    require(half == all / 2, "two jobs have something else than half of the port");
    require(share_count(quick, 2, false, false, 1500, now).share == half / 2, "the port is all of a stream that begins late");

    for (unsigned k = 0; k < JOBS; k++) port_leave(&jobs[k]), free(jobs[k].sharers), free(jobs[k].active.items);
    gl_port_free(port);
    return 0;
}
