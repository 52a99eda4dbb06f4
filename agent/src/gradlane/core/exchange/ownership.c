/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Plans that hold from a step on are kept to the end of the job: a tensor that is new, or seldom reduced, has old steps.
 */
#include "exchange/ownership.h"

#include <stdlib.h>
#include <sys/eventfd.h>

#include "arithmetic/types.h"

struct step_plan {
    uint64_t least;
    uint32_t first;  /* step */
    uint16_t straggler;
    uint8_t algorithm;
    uint32_t generation;
    uint32_t sums[]; /* of weights, as gl_shard_start takes them */
};

const step_plan *plan_at(const gl_exchange *x, uint32_t step) {
    const ownership *o = &x->ownership;
    unsigned low = 0, high = o->count;
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        if (o->plans[middle]->first <= step)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? o->plans[low - 1] : NULL;
}

const uint32_t *shares_of(const step_plan *p) { return p ? p->sums : NULL; }

static uint8_t algorithm_of(const step_plan *p, uint64_t bytes) { return p && bytes >= p->least ? p->algorithm : GL_DIRECT; }

static uint16_t straggler_of(const step_plan *p) { return p ? p->straggler : 0; }

static uint32_t generation_of(const gl_exchange *x, const step_plan *p) { return p ? p->generation : x->config.generation; }

gl_submission of_partition(const gl_exchange *x, const tensor *t, const partition *p, uint32_t step) {
    const step_plan *plan = plan_at(x, step);
    const uint64_t bytes = t->elements * gl_element_bytes(t->element_type);
    return (gl_submission){
        .step = step, .tensor = (uint16_t)(t->id * GL_MAX_PARTITIONS + (p - t->partitions)), .collective = GL_ALL_REDUCE,
        .algorithm = p->is.algorithm ? p->is.algorithm : algorithm_of(plan, bytes),
        .root = p->is.algorithm ? x->config.straggler : straggler_of(plan), .shares = shares_of(plan),
        .critical = x->tolerance.critical, .element_type = t->element_type, .reduction = p->reduction,
        .elements = p->is.elements, .layers = p->layers,
        .push_loss = p->lossy ? gl_tolerance_loss(&x->tolerance, p->is.push_loss) : 0,
        .pull_loss = p->lossy ? gl_tolerance_loss(&x->tolerance, p->is.pull_loss) : 0,
        .late = p->is.late && p->reduction == GL_MEAN_OF_ARRIVED, .generation = p->summed ? generation_of(x, plan) : 0,
        .residual = p->summed && p->residual.slices ? (gl_residual *)&p->residual : NULL};
}

void step_has_begun(gl_exchange *x, uint32_t step) {
    if (step > x->ownership.begun) x->ownership.begun = step;
}

void step_begin(gl_exchange *x, tensor *t) {
    ownership *o = &x->ownership;
    const bool waits = o->held && t->step > o->limit;
    tensor **list = waits ? &o->waiting : &x->work;
    t->next = *list;
    *list = t;
    if (!waits) step_has_begun(x, t->step);
}

/* Whether they have the same shares, before and after. `before` is NULL: equal ones. */
static bool same_owners(const step_plan *before, const step_plan *after, unsigned owners) {
    for (unsigned k = 1; k <= owners; k++)
        if (before ? before->sums[k] != after->sums[k] : after->sums[k] != k * after->sums[1]) return false;
    return true;
}

int gl_exchange_plan(gl_exchange *x, uint32_t first, const gl_step_plan *like) {
    ownership *o = &x->ownership;
    const unsigned owners = owners_of(x);
    uint64_t sum = 0;
    if (first <= o->begun || (o->count && first <= o->plans[o->count - 1]->first) || o->count == GL_MOST_PLANS) return -1;
    if (like->algorithm < GL_DIRECT || like->algorithm > GL_GRID || like->straggler >= x->config.hosts) return -1;
    step_plan **plans = realloc(o->plans, (o->count + 1) * sizeof *plans);
    if (!plans) return -1;
    o->plans = plans;
    step_plan *p = calloc(1, sizeof *p + (owners + 1) * sizeof *p->sums);
    if (!p) return -1;
    for (unsigned k = 0; k < owners; k++) p->sums[k + 1] = (uint32_t)(sum += like->weights[k]);
    if (!sum || sum > UINT32_MAX) return free(p), -1;
    if (!same_owners(o->count ? plans[o->count - 1] : NULL, p, owners) && gl_engine_owners_change(x->engine, first))
        return free(p), -1;
    p->first = first, p->algorithm = like->algorithm, p->straggler = like->straggler, p->least = like->least;
    p->generation = like->generation;
    plans[o->count++] = p;
    return 0;
}

uint32_t gl_exchange_hold(gl_exchange *x, uint32_t ahead) {
    ownership *o = &x->ownership;
    o->held = true, o->limit = o->begun + ahead;
    gl_engine_hold(x->engine, o->limit);
    return o->limit;
}

void gl_exchange_release(gl_exchange *x) {
    ownership *o = &x->ownership;
    tensor *t = o->waiting;
    o->held = false, o->waiting = NULL;
    gl_engine_hold(x->engine, UINT32_MAX);
    for (tensor *next; t; t = next) {
        next = t->next;
        step_begin(x, t);
    }
    eventfd_write(x->again, 1);
}

int gl_exchange_is_held(const gl_exchange *x) { return x->ownership.waiting != NULL; }

void ownership_free(ownership *o) {
    for (unsigned k = 0; k < o->count; k++) free(o->plans[k]);
    free(o->plans);
}
