/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A lane with something to send is in one of two heaps: by when its flow next lets it, and from then on by its turn.
 */
#include "tx/lanes.h"

#include "tx/message.h"

/* When a lane's flow begins, the pattern of its first message tells how many flows meet. */
static void begin(lane *l, uint64_t now) {
    const heap_item *first = heap_first(&l->messages);
    l->busy = true;
    flow_begin(&l->flow, now - l->idle_since, first ? container_of(first, tx_message, turn)->link->meeting : 1, now);
}

/* The lanes come in the order of their numbers, round after round: the first turn from x->turn on that is this one's. */
static uint64_t turn_of(const tx *x, const lane *l) {
    const uint64_t lanes = x->job->ranks + 1, turn = x->turn - x->turn % lanes + lane_number(x, l);
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

static void look_at(tx *x, lane *l, uint64_t now) {
    if (!l->backlog && l->busy) l->busy = false, l->idle_since = now;
    if (l->backlog && !l->busy) begin(l, now);
    place(x, l, now);
}

lane *lane_first(tx *x, uint64_t now) {
    for (lane *l; (l = x->changed);) {
        x->changed = l->next_changed, l->changed = false;
        look_at(x, l, now);
    }
    const uint64_t horizon = port_horizon(x->job->tenant.port, now);
    heap_item *first;
    while ((first = heap_first(&x->due)) && first->key <= horizon) place(x, container_of(first, lane, turn), now);
    first = heap_first(&x->open);
    return first ? container_of(first, lane, turn) : NULL;
}

void lane_sent(tx *x, lane *l, uint64_t now) {
    x->turn = l->turn.key + 1;
    look_at(x, l, now);
}

uint64_t lanes_due(const tx *x, uint64_t now) {
    if (x->changed || x->open.count) return now;
    const heap_item *first = heap_first(&x->due);
    return first ? first->key : UINT64_MAX;
}
