/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The steps of a tensor that a worker was left out of ascend, and the last `steps` of them are known. One more is allowed if
 * the first of these is `window` steps back: then every window that ends with the new one has at most `steps`, and every other
 * window was looked at when its last one was added. A new owner does not know what its elements have missed, so it leaves nobody
 * out before `window` steps are over: no window holds steps of both.
 */
#include "operation/leaving.h"

#include <stdlib.h>

#include "plan/submission.h"

bool leaving_new(leaving *l, const gl_config *c) {
    l->after = c->late_after, l->steps = c->late_steps, l->window = c->late_window, l->workers = c->workers;
    l->last = UINT32_MAX;
    l->count = calloc(l->workers, sizeof *l->count);
    if (!l->steps) return l->count;
    l->of = calloc(GL_FIRST_GROUP, sizeof *l->of);
    l->of_any = calloc((size_t)l->workers * l->steps, sizeof *l->of_any);
    return l->of && l->of_any && l->count;
}

void leaving_free(leaving *l) {
    for (unsigned tensor = 0; l->of && tensor < GL_FIRST_GROUP; tensor++) free(l->of[tensor]);
    free(l->of), free(l->of_any), free(l->count), free(l->changed);
}

bool owners_change(leaving *l, uint32_t first) {
    if (!l->steps || first <= 1) return true; /* before step 1 nobody was left out */
    uint32_t *changed = realloc(l->changed, (l->changes + 1) * sizeof *changed);
    if (!changed) return false;
    l->changed = changed;
    changed[l->changes++] = first;
    return true;
}

/* Whether a step's owners know all that its elements may have missed in a window with it. */
static bool is_settled(const leaving *l, uint32_t step) {
    unsigned k = l->changes;
    while (k && l->changed[k - 1] > step) k--;
    return step <= l->last && (!k || step - l->changed[k - 1] >= l->window - 1);
}

/* The one that is forgotten for the next: it is 0 as long as there are fewer than `steps`. */
static uint32_t *first_of(const leaving *l, uint32_t *steps) {
    uint32_t *first = steps;
    for (uint32_t *s = steps; s < steps + l->steps; s++)
        if (*s < *first) first = s;
    return first;
}

static uint32_t last_of(const leaving *l, const uint32_t *steps) {
    uint32_t last = 0;
    for (const uint32_t *s = steps; s < steps + l->steps; s++)
        if (*s > last) last = *s;
    return last;
}

static bool knows(const leaving *l, uint16_t tensor) {
    return l->steps && tensor < GL_FIRST_GROUP && l->of[tensor];
}

bool may_leave_out(const leaving *l, uint16_t tensor, unsigned rank, uint32_t step) {
    if (!l->steps || tensor >= GL_FIRST_GROUP || !step || !is_settled(l, step)) return false;
    if (!l->of[tensor]) return true;
    uint32_t *steps = l->of[tensor] + rank * l->steps, first = *first_of(l, steps);
    return step > last_of(l, steps) && (!first || step - first >= l->window);
}

bool leave_out(leaving *l, uint16_t tensor, unsigned rank, uint32_t step) {
    if (!may_leave_out(l, tensor, rank, step)) return false;
    if (!l->of[tensor]) l->of[tensor] = calloc((size_t)l->workers * l->steps, sizeof **l->of);
    if (!l->of[tensor]) return false;
    *first_of(l, l->of[tensor] + rank * l->steps) = step;
    uint32_t *any = l->of_any + rank * l->steps;
    if (step > last_of(l, any)) *first_of(l, any) = step, l->count[rank]++;
    return true;
}

bool was_left_out(const leaving *l, uint16_t tensor, unsigned rank, uint32_t step) {
    if (!knows(l, tensor) || !step) return false;
    const uint32_t *steps = l->of[tensor] + rank * l->steps;
    for (unsigned k = 0; k < l->steps; k++)
        if (steps[k] == step) return true;
    return false;
}

void left_out_of(const leaving *l, unsigned rank, gl_left_out *found) {
    *found = (gl_left_out){.steps = l->count[rank]};
    for (unsigned k = 0; k < l->steps; k++) {
        const uint32_t step = l->of_any[rank * l->steps + k];
        found->recent += step && step + l->window > l->latest;
    }
}
