/* SPDX-License-Identifier: Apache-2.0
 * Which lane sends next, against a model that looks at all of them: lanes get something to send and lose it, are reported on,
 * and send, in a random order. How often lanes are looked at does not depend on how many there are. */
#include "many_ranks.h"

#include "rate/flow.h"
#include "tx/lanes.h"

enum { RANKS = 200, TURNS = 200000, SOME = 5 };

static job j;
static tx x;
static uint64_t now = 1000000, looks, allowed;
static unsigned turn;                  /* the model's: a place in the round */
static lane *in_place[RANKS + 1];
static bool changed[RANKS + 1], busy[RANKS + 1];

uint64_t __real_flow_due(const flow *f);
uint64_t __wrap_flow_due(const flow *f) { return looks++, __real_flow_due(f); }

/* One that was due has been sent: so is what is due soon. */
static uint64_t horizon(void) { return j.tenant.port->until > now ? j.tenant.port->until - 1 : now; }

/* At times all lanes have something to send, at times few. */
static lane *some_lane(void) { return &x.lanes[draw(1000) < 900 ? draw(SOME) * 41 : draw(RANKS + 1)]; }

static void note(const lane *l) { changed[l - x.lanes] = true, allowed += 2; }

static void change(void) {
    lane *l = some_lane();
    const unsigned what = draw(4);
    const uint32_t before = l->backlog;
    if (what == 0) lane_more(&x, l, draw(50));
    if (what == 1) lane_less(&x, l, draw(3) ? draw(l->backlog + 1) : l->backlog);
    if (!l->backlog != !before) note(l);
    if (what < 2) return;
    /* As a report does: what is in flight, the window and the next time change. */
    if (what == 2)
        l->flow.acknowledged = l->flow.sequence - draw(30);
    else
        l->flow.next_send = now + draw(400), l->flow.room = draw(2) ? UINT32_MAX : 20000;
    lane_changed(&x, l), note(l);
}

/* Each place in a round of so many ranks is one lane's. */
static void check_places(const tx *of, unsigned ranks, lane **found) {
    for (unsigned i = 0; i <= ranks; i++) found[i] = NULL;
    for (unsigned i = 0; i <= ranks; i++) {
        lane *l = &of->lanes[i];
        require(l->place <= ranks && !found[l->place], "two lanes have one place, or one has none");
        found[l->place] = l;
    }
}

/* Whether something is to be sent by a host that had nothing. */
static bool starts(void) {
    bool any = false;
    for (unsigned i = 0; i <= RANKS; i++) {
        if (busy[i]) return false;
        any |= changed[i];
    }
    return any;
}

/* The lane whose turn it is, looked for among all; as it was before there were heaps. */
static lane *first_of_all(void) {
    for (unsigned i = 0; i <= RANKS; i++) {
        lane *l = in_place[(turn + i) % (RANKS + 1)];
        if (l->backlog && __real_flow_due(&l->flow) <= horizon()) return l;
    }
    return NULL;
}

static void check_busy(void) {
    for (unsigned i = 0; i <= RANKS; i++) {
        const lane *l = &x.lanes[i];
        require(l->busy == (l->backlog > 0), "a lane is taken for busy, or idle, wrongly");
        if (busy[i] && !l->busy) require(l->idle_since == now, "a lane is idle since another time");
        busy[i] = l->busy, changed[i] = false;
    }
}

static uint64_t first_due(void) {
    uint64_t due = UINT64_MAX;
    for (const lane *l = x.lanes; l <= x.lanes + RANKS; l++)
        if (l->backlog && __real_flow_due(&l->flow) < due) due = __real_flow_due(&l->flow);
    return due;
}

static void send(lane *l) {
    require(flow_open(&l->flow, horizon()), "a flow that is not open is to send");
    const uint32_t slices = 1 + draw(l->backlog);
    l->backlog -= slices, l->flow.sequence += slices;
    flow_sent(&l->flow, slices * 1500.0, now);
    lane_sent(&x, l, now);
    turn = l->place + 1;
    allowed += 3;
}

int main(void) {
    srand(1);
    for (unsigned ranks = 1; ranks < RANKS; ranks++) {
        job other = {0};
        tx of = {0};
        begin(&other, &of, (uint16_t)ranks);
        check_places(&of, ranks, in_place);
        tx_free(&of), job_free(&other);
    }
    begin(&j, &x, RANKS);
    check_places(&x, RANKS, in_place);
    unsigned starting = 0, sent = 0, waited = 0, most = 0;
    for (unsigned n = 0; n < TURNS; n++) {
        for (unsigned changes = draw(4); changes--;) change();
        if (draw(2000) == 0)
            for (lane *l = x.lanes; l <= x.lanes + RANKS; l++) note(l), lane_more(&x, l, 5);
        now += draw(20);
        if (j.tenant.port->until <= now && draw(10) == 0) j.tenant.port->until = now + draw(100);
        if (starts()) turn = 0, starting++;
        lane *l = lane_first(&x, now);
        require(looks <= allowed, "more lanes are looked at than have changed or sent");
        check_busy();
        require(l == first_of_all(), "it is another lane's turn");
        require(lanes_wait(&x) == (first_due() < UINT64_MAX), "something waits, or nothing");
        if (l) {
            require(lanes_due(&x, now) <= now, "what may send now is due later");
            send(l), sent++;
            check_busy();
        } else {
            require(lanes_due(&x, now) == first_due(), "another time is the first that a lane is due");
            if (first_due() < UINT64_MAX && draw(2)) now = first_due();
            waited++;
        }
        if (x.due.count + x.open.count > most) most = x.due.count + x.open.count;
    }
    require(starting > TURNS / 100, "there was always something to send");
    require(sent > TURNS / 4 && waited > TURNS / 20 && most > RANKS, "not everything was tried");
    tx_free(&x), job_free(&j);
    return 0;
}
