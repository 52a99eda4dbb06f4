/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans that hold from a step on are kept to the end of the job: a tensor that is new, or seldom reduced, has old steps.
 */
#include "exchange/ownership.h"

#include <stdlib.h>
#include <sys/eventfd.h>

#include "exchange/tensor.h"

struct step_plan {
    struct step_plan *before; /* what held in earlier steps */
    uint64_t least;
    uint32_t first;           /* step */
    uint16_t straggler;
    uint8_t algorithm;
    uint32_t sums[];          /* of weights, as gl_shard_start takes them */
};

const step_plan *plan_at(const gl_exchange *x, uint32_t step) {
    const step_plan *p = x->ownership.latest;
    while (p && step < p->first) p = p->before;
    return p;
}

const uint32_t *shares_of(const step_plan *p) { return p ? p->sums : NULL; }

uint8_t algorithm_of(const step_plan *p, uint64_t bytes) { return p && bytes >= p->least ? p->algorithm : GL_DIRECT; }

uint16_t straggler_of(const step_plan *p) { return p ? p->straggler : 0; }

bool shares_are_settled(const gl_exchange *x, uint32_t step) {
    const step_plan *p = plan_at(x, step);
    return !p || p->first <= 1 || step - p->first >= x->config.late_window - 1;
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

int gl_exchange_plan(gl_exchange *x, uint32_t first, const gl_step_plan *like) {
    ownership *o = &x->ownership;
    const unsigned owners = owners_of(x);
    uint64_t sum = 0;
    if (first <= o->begun || (o->latest && first <= o->latest->first)) return -1;
    if (like->algorithm < GL_DIRECT || like->algorithm > GL_STRAGGLAR || like->straggler >= x->config.hosts) return -1;
    step_plan *p = calloc(1, sizeof *p + (owners + 1) * sizeof *p->sums);
    if (!p) return -1;
    for (unsigned k = 0; k < owners; k++) p->sums[k + 1] = (uint32_t)(sum += like->weights[k]);
    if (!sum || sum > UINT32_MAX) return free(p), -1;
    p->first = first, p->before = o->latest;
    p->algorithm = like->algorithm, p->straggler = like->straggler, p->least = like->least;
    o->latest = p;
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
    for (step_plan *p = o->latest, *before; p; p = before) before = p->before, free(p);
}
