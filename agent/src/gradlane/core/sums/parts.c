/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What all ways of a part of a tensor's step have in common.
 */
#include "sums/parts.h"

#include "arithmetic/fixed_point.h"

stream *sums_find(const sums *x, uint16_t tensor) {
    const unsigned id = tensor / MOST_PARTS;
    stream *s = id < x->most ? x->streams[id] : NULL;
    return s && tensor % MOST_PARTS < s->count ? s : NULL;
}

void start_operation(sums *x, const gl_submission *is, uint64_t now) {
    if (operation_submit(x->operations, is, now)) x->job->failed = true;
}

void part_owe(sums *x, stream *s, part *p, uint32_t slice) {
    const gl_config *c = &x->job->config;
    const uint64_t at = (uint64_t)slice * per_slice(c) * gl_element_bytes(s->element_type);
    x->job->statistics.sums_left_out++;
    if (p->is.residual) gl_owe(p->is.residual->values + at, p->is.in + at, s->element_type, elements_of(c, p, slice));
}

void part_take(sums *x, stream *s, part *p, uint32_t slice, const int32_t *integers, int64_t most) {
    const gl_config *c = &x->job->config;
    int8_t *exponent = &s->exponents[p->first + slice];
    gl_from_sums(p->is.out + (uint64_t)slice * per_slice(c) * gl_element_bytes(s->element_type), s->element_type, integers,
                 elements_of(c, p, slice), *exponent, divisor_of(c, &p->is));
    *exponent = (int8_t)gl_next_exponent(*exponent, most, c->sums.lanes, c->workers);
}

void part_complete(sums *x, stream *s, part *p) {
    gl_statistics *count = &x->job->statistics;
    if (p->stage == SUMMING)
        count->summed_bytes += p->elements * gl_element_bytes(s->element_type);
    else
        count->sum_reruns++;
    p->stage = IDLE, p->known = p->step;
    if (p->is.residual) gl_residual_owe_all(p->is.residual);
    tell(x->operations, GL_EVENT_COMPLETED, p->step, wire_tensor(s, p), 0);
}
