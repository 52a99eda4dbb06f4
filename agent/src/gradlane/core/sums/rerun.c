/* SPDX-License-Identifier: Apache-2.0
 *
 * A step that the switch did not complete is done again by hosts, in the integers: all have begun it, so each still has its
 * own, and their sum is what the switch had for those who got it. So all end with the same, and nothing counts twice.
 */
#include "sums/rerun.h"

#include <stdlib.h>

#include "arithmetic/fixed_point.h"
#include "sums/parts.h"

static const uint32_t AGAIN_OF = GL_GREATEST_STEP + 1;

static bool has_sum(const stream *s, const part *p, uint32_t slice) {
    return s->kept == s->rerun && test_bit(s->has, p->first + slice);
}

/* Of a part that is complete here, or is not and has its contribution still. */
static void contribute(sums *x, stream *s, part *p, uint64_t now) {
    const gl_config *c = &x->job->config;
    const uint32_t limit = gl_lane_limit(c->sums.lanes, c->workers), lane_bytes = stream_lane_bytes(c);
    p->integers = malloc(p->elements * sizeof *p->integers);
    if (!p->integers) {
        x->job->failed = true;
        return;
    }
    for (uint32_t i = 0; i < p->slices; i++) {
        int32_t *integers = p->integers + (uint64_t)i * per_slice(c);
        const uint64_t at = (uint64_t)i * per_slice(c) * gl_element_bytes(s->element_type);
        const uint32_t n = elements_of(c, p, i);
        if (has_sum(s, p, i))
            gl_from_lanes(integers, s->lanes + (uint64_t)(p->first + i) * lane_bytes, c->sums.lanes, limit, n);
        else
            gl_to_integers(integers, c->sums.lanes, c->workers, p->is.in + at, s->element_type, n,
                           s->exponents[p->first + i], p->is.residual ? p->is.residual->values + at : NULL);
    }
    rerun_goes_on(x, p, IN_FLIGHT);
    const gl_submission is = {.step = s->rerun | AGAIN_OF, .tensor = wire_tensor(s, p), .collective = GL_ALL_REDUCE,
                              .algorithm = GL_DIRECT, .element_type = GL_TYPE_INT32, .reduction = GL_SUM,
                              .elements = p->elements, .in = (uint8_t *)p->integers, .out = (uint8_t *)p->integers};
    start_operation(x, &is, now);
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
    free(p->integers);
    p->integers = NULL;
    rerun_goes_on(x, p, p->next ? TO_DO : NOTHING);
    if (p->stage == AGAIN && !p->next) part_complete(x, s, p);
    p->next = false;
}

void rerun_work(sums *x, uint64_t now) {
    for (unsigned i = 0; x->pending && i < x->most; i++)
        for (unsigned k = 0; x->streams[i] && k < x->streams[i]->count; k++)
            if (is_to_do(x->streams[i]->parts[k].rerun)) {
                part *p = &x->streams[i]->parts[k];
                if (p->rerun == TO_DO)
                    contribute(x, x->streams[i], p, now);
                else
                    finish(x, x->streams[i], p);
                return;
            }
}

bool rerun_took(sums *x, part *p, gl_event *event) {
    if (event->step <= GL_GREATEST_STEP) return false;
    event->step -= AGAIN_OF;
    if (event->kind == GL_EVENT_COMPLETED && p->rerun == IN_FLIGHT) rerun_goes_on(x, p, DONE);
    return true;
}
