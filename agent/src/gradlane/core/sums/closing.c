/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Who is missing in sums, and who may be.
 *
 * The closer leaves a worker out of number j only if it has seen it in the sum of some i, j - W < i < j, of the same step. So
 * whoever waits before number k has a sum of the last window with that worker in it, or gets it by asking (closing_lets_send);
 * and any sum of a step tells that all have begun the step. Who is late with it is waited for, as it was without budgets.
 *
 * A switch that is restarted has forgotten what it has closed. So the closer closes only what it has sent with the switch's epoch
 * from the first time on: that is summed in this epoch or never, as no sum is without its closer. What it first sent without
 * one is never closed, so its sum is the same in every epoch.
 */
#include "sums/closing.h"

#include <string.h>

static uint32_t *members_in(const stream *s, uint32_t number) { return &s->members[number % (2 * s->window)]; }

void closing_begin(stream *s, uint32_t step) {
    if (!s->members) return;
    memset(s->members, 0, 2 * s->window * sizeof *s->members);
    s->reach = first_number(s, step) - 1, s->epoch = 0;
    for (unsigned k = 0; k < GL_SUM_MEMBERS; k++) s->seen[k] = s->reach;
}

bool closing_lets_send(const stream *s, uint32_t number) {
    return !s->members || (int32_t)(s->reach - (number - s->window)) >= 0;
}

uint8_t closing_sent(stream *s, flight *f) {
    f->may_miss = 0;
    if (s->members) *members_in(s, f->number) = 0;
    return s->epoch;
}

/* Those in sums of numbers of the step within the window before one. */
static uint32_t seen_before(const stream *s, uint32_t step, uint32_t number, uint32_t all) {
    const uint32_t of_step = number - first_number(s, step), most = s->window - 1;
    uint32_t seen = 0;
    for (uint32_t k = 1; k <= (of_step < most ? of_step : most) && seen != all; k++) seen |= *members_in(s, number - k);
    return seen;
}

bool closing_begins(const gl_config *c, stream *s, flight *f) {
    part *p = &s->parts[f->part];
    if (!p->budget || !is_closer(c, s, p) || !datagram_of(s, f)[GL_HEADER + GL_SUM_AT_EPOCH]) return false;
    const uint32_t others = seen_before(s, p->step, f->number, all_workers(c)) & ~only(c, c->rank);
    for (uint32_t left = others & ~f->may_miss; left; left &= left - 1) {
        const unsigned rank = (unsigned)__builtin_ctz(left);
        if (p->missing[rank] < p->budget) p->missing[rank]++, f->may_miss |= 1u << rank;
    }
    return f->may_miss;
}

bool closing_awaited(const gl_config *c, const stream *s, const flight *f) {
    const part *p = &s->parts[f->part];
    return p->budget && p->missing[c->rank] < p->budget && datagram_of(s, f)[GL_HEADER + GL_SUM_AT_EPOCH] && !is_closer(c, s, p);
}

bool closing_permits(const gl_config *c, const stream *s, const flight *f, uint32_t members) {
    const part *p = &s->parts[f->part];
    for (uint32_t left = all_workers(c) & ~members; left; left &= left - 1) {
        const unsigned rank = (unsigned)__builtin_ctz(left);
        if (p->missing[rank] + !(f->may_miss >> rank & 1) > p->budget) return false;
    }
    return true;
}

void closing_came(const gl_config *c, stream *s, const flight *f, uint32_t members, uint8_t epoch) {
    part *p = &s->parts[f->part];
    if (!s->members) return;
    if (!s->epoch) s->epoch = epoch;
    for (uint32_t left = f->may_miss & members; left; left &= left - 1) p->missing[__builtin_ctz(left)]--;
    for (uint32_t left = all_workers(c) & ~members & ~f->may_miss; left; left &= left - 1) p->missing[__builtin_ctz(left)]++;
    *members_in(s, f->number) = members;
    uint32_t least = UINT32_MAX;
    for (unsigned rank = 0; rank < c->workers; rank++) {
        if (members >> rank & 1 && (int32_t)(f->number - s->seen[rank]) > 0) s->seen[rank] = f->number;
        if (rank != c->rank && s->seen[rank] - s->reach < least) least = s->seen[rank] - s->reach;
    }
    s->reach += least;
}
