/* SPDX-License-Identifier: Apache-2.0
 * How many streams come in, against a count of all of them, while they begin, go on, fall silent and end in a random order;
 * and who has yet to be told its share. */
#include "many_ranks.h"

#include "rate/pacing.h"
#include "rate/tenant.h"

enum { RANKS = 60, TURNS = 300000 };

static tenant t = {.rate = 1250, .queue_time = 400, .weight = 1, .ranks = RANKS};
static uint64_t now = 1000000;

static unsigned count_all(void) {
    unsigned count = 0;
    for (const sharer *s = t.sharers; s < t.sharers + 2 * RANKS; s++) count += s->active_until > now;
    return count;
}

int main(void) {
    srand(1);
    t.sharers = calloc(2 * RANKS, sizeof *t.sharers);
    t.port = gl_port_new(0);
    if (!t.sharers || !t.port || !heap_reserve(&t.active, 2 * RANKS)) return 1;
    port_join(&t);
    unsigned few = 0, many = 0, grown = 0;
    for (unsigned n = 0; n < TURNS; n++) {
        const unsigned rank = 1 + draw(RANKS - 1), what = draw(20);
        const bool multicast = draw(4) == 0;
        sharer *s = sharer_of(&t, rank, multicast);
        const uint32_t news = t.news;
        if (what == 0) {
            const uint64_t until = s->active_until;
            share_expect(&t, rank, multicast, now);
            const uint64_t expected = until > now + STREAM_IDLE ? until : now + STREAM_IDLE;
            require(s->active_until == expected, "it is expected for another time");
        } else if (what == 1) {
            share_end(&t, rank);
            require(!sharer_of(&t, rank, false)->active_until, "what has ended goes on");
        } else {
            const bool end = draw(3) == 0;
            share_count(&t, rank, multicast, end, 1474, now);
            require(s->active_until == now + (end ? STREAM_IDLE / 4 : STREAM_IDLE), "a stream is over at another time");
        }
        const unsigned before = t.streams;
        share_grow(&t, now);
        require(t.active.count == count_all(), "streams are counted wrongly");
        require(t.streams >= t.active.count && t.streams >= before, "streams that begin do not count");
        if (t.streams > before) require(t.news != news, "nobody is told of a stream more"), grown++;
        if (draw(3) == 0) s->told = t.news;
        /* Now many are there, now few. */
        now += n / 20000 % 2 ? draw(8000) : draw(60);
        few += t.active.count < 5, many += t.active.count > RANKS;
    }
    require(few > 1000 && many > 1000 && grown > 1000, "not everything was tried");
    port_leave(&t);
    gl_port_free(t.port), free(t.sharers), free(t.active.items);
    return 0;
}
