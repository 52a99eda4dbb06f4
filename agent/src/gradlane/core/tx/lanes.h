/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Which lane sends next: of those that have something to send, and whose flow lets them, each in its turn. What this costs
 * depends on what is sent, not on how many lanes there are.
 */
#ifndef GRADLANE_LANES_H
#define GRADLANE_LANES_H

#include "tx/tx.h"

/* What a lane has to send has begun or ended, or its flow has changed: it is looked at before anything else is sent. */
static inline void lane_changed(tx *x, lane *l) {
    if (l->changed) return;
    l->changed = true;
    l->next_changed = x->changed, x->changed = l;
}

/* It has so many slices more, or fewer, to send. */
static inline void lane_more(tx *x, lane *l, uint32_t slices) {
    if (!l->backlog && slices) lane_changed(x, l);
    l->backlog += slices;
}
static inline void lane_less(tx *x, lane *l, uint32_t slices) {
    l->backlog -= slices;
    if (!l->backlog && slices) lane_changed(x, l);
}

/* The lane whose turn it is. NULL: none may send now. */
lane *lane_first(tx *x, uint64_t now);
/* It has sent: the turn is that of those behind it. */
void lane_sent(tx *x, lane *l, uint64_t now);
/* When one may next send, as far as its flow is concerned; UINT64_MAX: none has anything to send. */
uint64_t lanes_due(const tx *x, uint64_t now);
/* Whether one has something to send. */
static inline bool lanes_wait(const tx *x) { return x->changed || x->due.count || x->open.count; }

#endif
