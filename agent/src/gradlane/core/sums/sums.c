/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Which way a part of a tensor's step goes: by the switch, by hosts, or by hosts again.
 */
#include "sums/sums.h"

#include <stdlib.h>

#include <string.h>

#include "arithmetic/fixed_point.h"
#include "sums/closing.h"
#include "sums/parts.h"
#include "sums/remind.h"
#include "sums/rerun.h"

enum { ALONE = 16 };

bool sums_new(sums *x, job *j, operations *all) {
    const gl_sums *c = &j->config.sums;
    x->job = j, x->operations = all;
    if (!c->lanes) return true;
    x->most = c->slots / (2 * c->window);
    x->barred = c->generation - 1;
    for (uint32_t i = 0; i < j->config.loss_count; i++) x->budgets |= j->config.losses[i].push > 0;
    x->streams = calloc(x->most + 1, sizeof *x->streams);
    return x->streams;
}

void sums_free(sums *x) {
    for (unsigned i = 0; i < x->most && x->streams; i++) {
        if (x->streams[i]) timer_stop(x->job, &x->streams[i]->due);
        stream_free(x->streams[i]);
    }
    free(x->streams);
}

static bool same(const stream *s, const gl_sum_stream *like) {
    if (s->element_type != like->element_type || s->count != like->count) return false;
    for (unsigned k = 0; k < s->count; k++)
        if (s->parts[k].elements != like->elements[k]) return false;
    return true;
}

static bool is_idle(const stream *s) {
    for (unsigned k = 0; k < s->count; k++)
        if (s->parts[k].stage != IDLE || s->parts[k].rerun != NOTHING) return false;
    return true;
}

bool sums_open(sums *x, const gl_sum_stream *like) {
    stream **at = &x->streams[like->tensor < x->most ? like->tensor : 0];
    if (like->tensor >= x->most) return false;
    if (*at && same(*at, like)) return true;
    if (*at && !is_idle(*at)) return false;
    stream *s = stream_new(&x->job->config, like, x->budgets);
    if (!s) return false;
    if (*at) stream_clear(x->job, *at), stream_free(*at);
    *at = s;
    return true;
}

/* The switch's, if it may be. */
static bool is_for_switch(const sums *x, const part *p) {
    const uint32_t generation = p->is.generation;
    return generation && (int32_t)(generation - x->barred) > 0 && p->known && p->known == p->step - 1;
}

static void begin_sum(sums *x, stream *s, part *p) {
    if (s->generation != p->is.generation) s->generation = p->is.generation, s->by_switch = 0, stream_clear(x->job, s);
    if (s->by_switch != p->step) {
        if (s->by_switch != p->step - 1) closing_begin(s, p->step);
        s->by_switch = p->step, s->next_part = 0, s->next_slice = 0;
    }
    p->stage = SUMMING, p->done = 0;
    memset(p->missing, 0, sizeof p->missing);
}

static void begin(sums *x, stream *s, part *p, uint64_t now) {
    const bool again = p->step == s->rerun, by_switch = !again && is_for_switch(x, p);
    p->stage = PARKED;
    if (by_switch && x->halted) return;
    if (p->step > s->step) s->step = p->step;
    if (by_switch) {
        begin_sum(x, s, p);
    } else if (again) {
        p->stage = AGAIN;
        rerun_goes_on(x, p, TO_DO);
    } else {
        p->stage = BY_HOSTS;
        start_operation(x, &p->is, now);
    }
}

int sums_submit(sums *x, stream *s, const gl_submission *is, uint64_t now) {
    const gl_config *c = &x->job->config;
    part *p = &s->parts[is->tensor % MOST_PARTS];
    const bool fits = is->collective == GL_ALL_REDUCE && is->elements == p->elements && is->element_type == s->element_type &&
                      (is->reduction <= GL_MEAN || is->reduction == GL_SUM) && !is->group && is->in && is->out &&
                      is->in != is->out;
    const uint32_t loss_class = class_of(c, is->layers ? is->layers[0] : 0);
    if (!fits || p->stage != IDLE || is->step <= p->step || is->step > GL_GREATEST_STEP || !submission_is_valid(c, is) ||
        is->push_loss > tolerated(c, loss_class, false))
        return -1;
    leaving *l = &x->operations->leaving;
    if (is->absent && !leave_out(l, is->tensor, c->rank, is->step)) return -1;
    if (l->steps && is->step > l->latest) l->latest = is->step;
    p->is = *is, p->step = is->step, p->since = now;
    p->budget = budget_of(is->push_loss, p->slices);
    if (p->budget == p->slices) p->budget--;
    begin(x, s, p, now);
    p->is.magnitudes = NULL; /* they are the caller's; what hosts begin later does without */
    return x->job->failed ? -1 : 0;
}

static void learn_exponents(sums *x, stream *s, part *p) {
    const gl_config *c = &x->job->config;
    const uint32_t item = gl_element_bytes(s->element_type);
    for (uint32_t i = 0; i < p->slices; i++) {
        int8_t *exponent = &s->exponents[p->first + i];
        *exponent = (int8_t)gl_exponent_of(*exponent, p->is.out + (uint64_t)i * per_slice(c) * item, s->element_type,
                                           elements_of(c, p, i), divisor_of(c, &p->is), c->sums.lanes, c->workers);
    }
    p->known = p->step;
}

bool sums_took(sums *x, gl_event *event) {
    stream *s = event->tensor < GL_FIRST_GROUP ? sums_find(x, event->tensor) : NULL;
    if (!s) return false;
    part *p = &s->parts[event->tensor % MOST_PARTS];
    if (rerun_took(x, p, event)) return event->kind == GL_EVENT_COMPLETED;
    if (event->kind == GL_EVENT_COMPLETED && p->stage == BY_HOSTS && event->step == p->step)
        learn_exponents(x, s, p), p->stage = IDLE;
    return false;
}

/* ---- Halting ---- */

void sums_halt(sums *x) { x->halted = true; }

/* Whether a part of the stream's latest step needs the switch. */
static bool needs_switch(const stream *s) {
    if (s->by_switch != s->step) return false;
    for (unsigned k = 0; k < s->count; k++) {
        const part *p = &s->parts[k];
        if (p->step < s->step || (p->step == s->step && (p->stage == SUMMING || p->stage == PARKED))) return true;
    }
    return false;
}

/* When the stream's latest step began to wait for others: a sum of it says that all have begun it. 0: it does not. */
static uint64_t waits_since(const stream *s) {
    uint64_t since = UINT64_MAX;
    for (unsigned k = 0; k < s->count; k++) {
        const part *p = &s->parts[k];
        if (p->step != s->step) continue;
        if (p->stage != SUMMING || p->done) return 0;
        if (p->since < since) since = p->since;
    }
    return since < UINT64_MAX ? since : 0;
}

unsigned sums_state(const sums *x, gl_sum_state *states, unsigned most) {
    unsigned count = 0;
    for (unsigned i = 0; i < x->most; i++) {
        const stream *s = x->streams[i];
        if (!s) continue;
        if (count < most) states[count] = (gl_sum_state){s->tensor, s->step - needs_switch(s), s->step, waits_since(s)};
        count++;
    }
    return count;
}

/* What a part has to do with a step of its stream that is done again. */
typedef enum { NOT_YET, OWN, HELPS, NONSENSE } rerun_role;
static rerun_role role_in(const stream *s, const part *p, uint32_t step) {
    if (p->step < step) return s->step == step ? NOT_YET : NONSENSE;
    if (p->step == step && (p->stage == SUMMING || p->stage == PARKED)) return OWN;
    return s->kept == step && p->known == step ? HELPS : NONSENSE;
}

static stream *stream_of(const sums *x, uint16_t tensor) { return tensor < x->most ? x->streams[tensor] : NULL; }

static bool makes_sense(const sums *x, const gl_sum_rerun *r) {
    const stream *s = stream_of(x, r->tensor);
    if (!s || !r->step) return false;
    if (s->rerun == r->step) return true; /* it has been told before */
    for (unsigned k = 0; k < s->count; k++)
        if (role_in(s, &s->parts[k], r->step) == NONSENSE) return false;
    return true;
}

static void rerun(sums *x, stream *s, uint32_t step) {
    if (s->rerun == step) return;
    for (unsigned k = 0; k < s->count; k++) {
        part *p = &s->parts[k];
        const rerun_role role = role_in(s, p, step);
        if (role == OWN) p->stage = AGAIN;
        if (role != OWN && role != HELPS) continue;
        /* Who only helps may have it in flight while others, who have the result, are steps ahead. */
        if (p->rerun == NOTHING) rerun_goes_on(x, p, TO_DO);
        else p->next = p->rerun != TO_DO;
    }
    s->rerun = step;
}

static void go_on(sums *x, uint64_t now) {
    for (unsigned i = 0; i < x->most; i++) {
        stream *s = x->streams[i];
        for (flight *f; s && (f = flight_first(s, FLYING));) flight_move(s, f, LOST);
        for (flight *f; s && (f = flight_first(s, DEFERRED));) flight_move(s, f, LOST);
        if (s) s->backoff = 0;
        for (unsigned k = 0; s && k < s->count; k++)
            if (s->parts[k].stage == PARKED) begin(x, s, &s->parts[k], now);
    }
}

bool sums_resume(sums *x, uint32_t generation, bool by_switch, const gl_sum_rerun *reruns, unsigned count, uint64_t now) {
    if (by_switch && (int32_t)(generation - x->barred) > 0) {
        if (x->halted) x->halted = false, go_on(x, now);
        for (unsigned i = 0; i < count; i++)
            if (stream_of(x, reruns[i].tensor)) remind(stream_of(x, reruns[i].tensor), reruns[i].step);
        return true;
    }
    for (unsigned i = 0; i < count; i++)
        if (!makes_sense(x, &reruns[i])) return false;
    x->halted = false, x->barred = generation;
    for (unsigned i = 0; i < count; i++) rerun(x, stream_of(x, reruns[i].tensor), reruns[i].step);
    for (unsigned i = 0; i < x->most; i++) {
        stream *s = x->streams[i];
        if (!s) continue;
        if (s->kept != s->rerun) s->kept = 0;
        stream_clear(x->job, s);
        s->by_switch = 0, s->generation = 0;
        for (unsigned k = 0; k < s->count; k++)
            if (s->parts[k].stage == SUMMING || s->parts[k].stage == PARKED) begin(x, s, &s->parts[k], now);
    }
    return true;
}

/* A stream that waits behind more urgent ones at a slow port gets nothing for as long as they take: while any other gets sums,
 * it has ALONE times as long. */
uint64_t sums_overdue(const sums *x, uint64_t now) {
    uint64_t longest = 0, latest = 0;
    for (unsigned i = 0; i < x->most; i++)
        if (x->streams[i] && x->streams[i]->progress_at > latest) latest = x->streams[i]->progress_at;
    for (unsigned i = 0; i < x->most && !x->halted; i++) {
        const stream *s = x->streams[i];
        uint64_t since = now;
        for (uint32_t k = 0; s && k < s->window; k++)
            if (s->flights[k].state != FREE && s->flights[k].first_at < since) since = s->flights[k].first_at;
        if (s && since < s->progress_at) since = s->progress_at;
        const uint64_t own = now > since ? (now - since) / ALONE : 0;
        if (since < latest) since = latest;
        const uint64_t all = now > since ? now - since : 0;
        if (own > longest) longest = own;
        if (all > longest) longest = all;
    }
    return longest;
}

void sums_waits(const sums *x, gl_sum_waits *w) {
    *w = (gl_sum_waits){0};
    for (unsigned slot = 0; slot < GL_LATE_STEPS; slot++) {
        if (!x->waits.step[slot]) continue;
        w->step[w->steps] = x->waits.step[slot], w->tensor[w->steps] = x->waits.tensor[slot];
        w->waited[w->steps++] = x->waits.waited[slot];
    }
}

const part *sums_oldest(const sums *x) {
    const part *oldest = NULL;
    for (unsigned i = 0; i < x->most; i++)
        for (unsigned k = 0; x->streams[i] && k < x->streams[i]->count; k++) {
            const part *p = &x->streams[i]->parts[k];
            if ((p->stage == SUMMING || p->stage == PARKED) && (!oldest || p->since < oldest->since)) oldest = p;
        }
    return oldest;
}
