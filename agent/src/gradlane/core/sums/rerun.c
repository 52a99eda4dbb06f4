/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A step that the switch did not complete is done again by hosts, in the integers: all have begun it, so each still has its
 * own, and their sum is what the switch had for those who got it. So all end with the same, and nothing counts twice.
 *
 * Where budgets let workers be missing in sums, all first tell one another who is missing in those that they have. There is only
 * one sum of a slice, so the greatest of what they say is what it lacks, and 0 if nobody has it.
 */
#include "sums/rerun.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic/fixed_point.h"
#include "sums/closing.h"
#include "sums/parts.h"

/* The steps of their operations: of the integers, and of who is missing. */
static const uint32_t AGAIN_OF = GL_GREATEST_STEP + 1u, MISSING_OF = 2u * (GL_GREATEST_STEP + 1u);

static bool has_sum(const stream *s, const part *p, uint32_t slice) {
    return s->kept == s->rerun && test_bit(s->has, p->first + slice);
}

static uint32_t told_of(const part *p, uint32_t slice) {
    return p->told ? (p->told[2 * slice] & 0xffff) | (uint32_t)p->told[2 * slice + 1] << 16 : 0;
}

static int32_t *room(sums *x, uint64_t count) {
    int32_t *integers = malloc(count * sizeof *integers);
    if (!integers) x->job->failed = true;
    return integers;
}

static void reduce(sums *x, stream *s, part *p, uint32_t of, unsigned reduction, int32_t *integers, uint64_t count,
                   uint64_t now) {
    rerun_goes_on(x, p, IN_FLIGHT);
    const gl_submission is = {.step = s->rerun | of, .tensor = wire_tensor(s, p), .collective = GL_ALL_REDUCE,
                              .algorithm = GL_DIRECT, .element_type = GL_TYPE_INT32, .reduction = (uint8_t)reduction,
                              .elements = count, .in = (uint8_t *)integers, .out = (uint8_t *)integers};
    start_operation(x, &is, now);
}

static void tell_missing(sums *x, stream *s, part *p, uint64_t now) {
    p->told = room(x, 2 * (uint64_t)p->slices);
    for (uint32_t i = 0; p->told && i < p->slices; i++) {
        const uint32_t missing = has_sum(s, p, i) ? s->missing[p->first + i] : 0;
        p->told[2 * i] = (int32_t)(missing & 0xffff), p->told[2 * i + 1] = (int32_t)(missing >> 16);
    }
    if (p->told) reduce(x, s, p, MISSING_OF, GL_MAX, p->told, 2 * (uint64_t)p->slices, now);
}

/* The worker of which too much would be missing, or which some have in a sum and others not; `workers`: there is none. */
static unsigned find_offender(const gl_config *c, const stream *s, const part *p) {
    uint32_t missing[GL_SUM_MEMBERS] = {0};
    for (uint32_t i = 0; i < p->slices; i++) {
        const uint32_t told = told_of(p, i) & all_workers(c);
        const uint32_t differs = has_sum(s, p, i) ? told ^ s->missing[p->first + i] : 0;
        if (differs) return (unsigned)__builtin_ctz(differs);
        for (uint32_t left = told; left; left &= left - 1) {
            const unsigned rank = (unsigned)__builtin_ctz(left);
            if (++missing[rank] > p->budget && p->step == s->rerun) return rank;
        }
    }
    return c->workers;
}

/* Of a part that is complete here, or is not and has its contribution still. */
static void contribute(sums *x, stream *s, part *p, uint64_t now) {
    const gl_config *c = &x->job->config;
    const uint32_t limit = gl_lane_limit(c->sums.lanes, c->workers);
    p->integers = room(x, p->elements);
    if (!p->integers) return;
    for (uint32_t i = 0; i < p->slices; i++) {
        int32_t *integers = p->integers + (uint64_t)i * per_slice(c);
        const uint64_t at = (uint64_t)i * per_slice(c) * gl_element_bytes(s->element_type);
        const uint32_t n = elements_of(c, p, i);
        const bool without = is_among(c, told_of(p, i), c->rank), has = has_sum(s, p, i);
        if (without)
            memset(integers, 0, n * sizeof *integers);
        else if (has)
            gl_from_lanes(integers, contribution_of(s, p->first + i) + GL_HEADER + GL_SUM_BYTES, c->sums.lanes, limit, n);
        else
            gl_to_integers(integers, c->sums.lanes, c->workers, p->is.in + at, s->element_type, n,
                           s->exponents[p->first + i], p->is.residual ? p->is.residual->values + at : NULL);
        if (without && !has) part_owe(x, s, p, i);
    }
    reduce(x, s, p, AGAIN_OF, GL_SUM, p->integers, p->elements, now);
}

/* All have told who is missing. */
static void heed(sums *x, stream *s, part *p, uint64_t now) {
    const unsigned offender = p->next ? x->job->config.workers : find_offender(&x->job->config, s, p);
    if (offender < x->job->config.workers) {
        gl_event *event = tell(x->operations, GL_EVENT_OVER_BUDGET, s->rerun, wire_tensor(s, p), 0);
        if (event) event->source = (uint16_t)offender;
        rerun_goes_on(x, p, NOTHING);
    } else if (p->next) {
        rerun_goes_on(x, p, TO_DO);
        p->next = false;
    } else {
        contribute(x, s, p, now);
        return;
    }
    free(p->told);
    p->told = NULL;
}

static int64_t greatest(const int32_t *integers, uint32_t n) {
    int64_t most = 0;
    for (uint32_t k = 0; k < n; k++) {
        const int64_t absolute = integers[k] < 0 ? -(int64_t)integers[k] : integers[k];
        if (absolute > most) most = absolute;
    }
    return most;
}

static void finish(sums *x, stream *s, part *p) {
    const gl_config *c = &x->job->config;
    for (uint32_t i = 0; i < p->slices && p->stage == AGAIN && !p->next; i++) {
        const int32_t *integers = p->integers + (uint64_t)i * per_slice(c);
        if (!has_sum(s, p, i)) part_take(x, s, p, i, integers, greatest(integers, elements_of(c, p, i)));
    }
    free(p->integers), free(p->told);
    p->integers = p->told = NULL;
    rerun_goes_on(x, p, p->next ? TO_DO : NOTHING);
    if (p->stage == AGAIN && !p->next) part_complete(x, s, p);
    p->next = false;
}

void rerun_work(sums *x, uint64_t now) {
    for (unsigned i = 0; x->pending && i < x->most; i++)
        for (unsigned k = 0; x->streams[i] && k < x->streams[i]->count; k++)
            if (is_to_do(x->streams[i]->parts[k].rerun)) {
                stream *s = x->streams[i];
                part *p = &s->parts[k];
                if (p->rerun == TO_DO)
                    (x->budgets ? tell_missing : contribute)(x, s, p, now);
                else if (p->integers)
                    finish(x, s, p);
                else
                    heed(x, s, p, now);
                return;
            }
}

bool rerun_took(sums *x, part *p, gl_event *event) {
    if (event->step <= GL_GREATEST_STEP) return false;
    event->step &= GL_GREATEST_STEP;
    if (event->kind == GL_EVENT_COMPLETED && p->rerun == IN_FLIGHT) rerun_goes_on(x, p, DONE);
    return true;
}
