/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares that hold from a step on are kept to the end of the job: a tensor that is new, or seldom reduced, has old steps.
 */
#include "exchange/ownership.h"

#include <stdlib.h>
#include <sys/eventfd.h>

#include "exchange/tensor.h"

struct shares {
    struct shares *before; /* what held in earlier steps; NULL: equal shares */
    uint32_t first;        /* step */
    uint32_t sums[];       /* as gl_shard_start takes them */
};

const uint32_t *shares_at(const gl_exchange *x, uint32_t step) {
    const shares *s = x->ownership.latest;
    while (s && step < s->first) s = s->before;
    return s ? s->sums : NULL;
}

bool shares_are_settled(const gl_exchange *x, uint32_t step) {
    const shares *s = x->ownership.latest;
    while (s && step < s->first) s = s->before;
    return !s || s->first <= 1 || step - s->first >= x->config.late_window - 1;
}

bool step_begins_without(gl_exchange *x, uint32_t step) {
    ownership *o = &x->ownership;
    if (o->held && step > o->limit) return false;
    if (step > o->begun) o->begun = step;
    return true;
}

void step_begin(gl_exchange *x, tensor *t) {
    ownership *o = &x->ownership;
    const bool waits = o->held && t->step > o->limit;
    tensor **list = waits ? &o->waiting : &x->work;
    t->next = *list;
    *list = t;
    if (!waits && t->step > o->begun) o->begun = t->step;
}

int gl_exchange_shares(gl_exchange *x, uint32_t first, const uint32_t *weights) {
    ownership *o = &x->ownership;
    const unsigned owners = owners_of(x);
    uint64_t sum = 0;
    if (first <= o->begun || (o->latest && first <= o->latest->first)) return -1;
    shares *s = calloc(1, sizeof *s + (owners + 1) * sizeof *s->sums);
    if (!s) return -1;
    for (unsigned k = 0; k < owners; k++) s->sums[k + 1] = (uint32_t)(sum += weights[k]);
    if (!sum || sum > UINT32_MAX) return free(s), -1;
    s->first = first, s->before = o->latest;
    o->latest = s;
    return 0;
}

uint32_t gl_exchange_hold(gl_exchange *x, uint32_t ahead) {
    ownership *o = &x->ownership;
    o->held = true, o->limit = o->begun + ahead;
    return o->limit;
}

void gl_exchange_release(gl_exchange *x) {
    ownership *o = &x->ownership;
    tensor *t = o->waiting;
    o->held = false, o->waiting = NULL;
    for (tensor *next; t; t = next) {
        next = t->next;
        step_begin(x, t);
    }
    eventfd_write(x->again, 1);
}

int gl_exchange_is_held(const gl_exchange *x) { return x->ownership.waiting != NULL; }

void ownership_free(ownership *o) {
    for (shares *s = o->latest, *before; s; s = before) before = s->before, free(s);
}
