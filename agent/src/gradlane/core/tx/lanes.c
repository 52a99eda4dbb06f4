/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A lane with something to send is in one of two heaps: by when its flow next lets it, and from then on by its turn.
 */
#include "tx/lanes.h"

#include "tx/message.h"

/* When a lane's flow begins, the pattern of its first message tells how many flows meet. */
static void begin(lane *l, unsigned sending, uint64_t now) {
    const heap_item *first = heap_first(&l->messages);
    const unsigned meeting = first ? container_of(first, tx_message, turn)->link->meeting : 1;
    l->busy = true;
    flow_begin(&l->flow, now - l->idle_since, meeting, sending < meeting, now);
}

/* The lanes come in the order of their places, round after round: the first turn from x->turn on that is this one's. */
static uint64_t turn_of(const tx *x, const lane *l) {
    const uint64_t lanes = x->job->ranks + 1, turn = x->turn - x->turn % lanes + l->place;
    return turn < x->turn ? turn + lanes : turn;
}

/* Puts a lane where it belongs. */
static void place(tx *x, lane *l, uint64_t now) {
    const uint64_t due = l->backlog ? flow_due(&l->flow) : UINT64_MAX;
    const bool open = due <= port_horizon(x->job->tenant.port, now);
    if (open != l->open || !l->backlog) heap_remove(l->open ? &x->open : &x->due, &l->turn);
    l->open = open;
    if (l->backlog) queue_put(x->job, open ? &x->open : &x->due, &l->turn, open ? turn_of(x, l) : due);
}

static void look_at(tx *x, lane *l, unsigned sending, uint64_t now) {
    if (!l->backlog && l->busy) l->busy = false, l->idle_since = now;
    if (l->backlog && !l->busy) begin(l, sending, now);
    place(x, l, now);
}

/* The lanes with something to send. A host that had nothing begins its round at a place of its own: so of hosts that begin
 * together no two send to the same one at once. */
static unsigned count_sending(tx *x) {
    unsigned count = x->due.count + x->open.count;
    if (!count) x->turn = x->job->ranks + 1 - x->job->config.rank;
    for (const lane *l = x->changed; l; l = l->next_changed) count += l->backlog && !l->busy;
    return count;
}

lane *lane_first(tx *x, uint64_t now) {
    const unsigned sending = x->changed ? count_sending(x) : 0;
    for (lane *l; (l = x->changed);) {
        x->changed = l->next_changed, l->changed = false;
        look_at(x, l, sending, now);
    }
    const uint64_t horizon = port_horizon(x->job->tenant.port, now);
    heap_item *first;
    while ((first = heap_first(&x->due)) && first->key <= horizon) place(x, container_of(first, lane, turn), now);
    first = heap_first(&x->open);
    return first ? container_of(first, lane, turn) : NULL;
}

void lane_sent(tx *x, lane *l, uint64_t now) {
    x->turn = l->turn.key + 1;
    look_at(x, l, 0, now);
}

uint64_t lanes_due(const tx *x, uint64_t now) {
    if (x->changed || x->open.count) return now;
    const heap_item *first = heap_first(&x->due);
    return first ? first->key : UINT64_MAX;
}
