/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A stream's beginning and end, and its window.
 */
#include "sums/stream.h"

#include <stdlib.h>

#include "arithmetic/fixed_point.h"

uint32_t stream_lane_bytes(const gl_config *c) {
    const uint32_t words = c->slice_bytes < GL_SUM_BYTES ? 0 : (c->slice_bytes - GL_SUM_BYTES) / GL_SUM_WORD;
    return (words < GL_MAX_SUM_WORDS ? words : GL_MAX_SUM_WORDS) * GL_SUM_WORD;
}

static bool is_sound(const gl_config *c, const gl_sum_stream *like) {
    if (!like->count || like->count > MOST_PARTS || !gl_element_is_float(like->element_type)) return false;
    for (unsigned k = 0; k < like->count; k++)
        if (!like->elements[k] || like->elements[k] > (uint64_t)UINT16_MAX * per_slice(c)) return false;
    return like->element_type != GL_TYPE_FLOAT64;
}

stream *stream_new(const gl_config *c, const gl_sum_stream *like, bool budgets) {
    if (!stream_lane_bytes(c) || !is_sound(c, like)) return NULL;
    stream *s = calloc(1, sizeof *s + like->count * sizeof *s->parts);
    if (!s) return NULL;
    s->due.of = OF_STREAM;
    s->tensor = like->tensor, s->element_type = like->element_type, s->count = like->count, s->window = c->sums.window;
    for (unsigned k = 0; k < s->count; k++) {
        part *p = &s->parts[k];
        p->elements = like->elements[k], p->first = s->slices;
        p->slices = (uint32_t)((p->elements + per_slice(c) - 1) / per_slice(c));
        s->slices += p->slices;
    }
    s->stride = GL_HEADER + GL_SUM_BYTES + stream_lane_bytes(c);
    s->exponents = malloc(s->slices);
    s->contributions = malloc((size_t)s->slices * s->stride);
    s->has = calloc(words(s->slices), sizeof *s->has);
    s->missing = budgets ? calloc(s->slices, sizeof *s->missing) : NULL;
    s->members = budgets ? calloc(2 * s->window, sizeof *s->members) : NULL;
    s->flights = calloc(s->window + FREE, sizeof *s->flights);
    s->datagrams = malloc((size_t)s->window * s->stride);
    if (!s->exponents || !s->contributions || !s->has || !s->flights || !s->datagrams || (budgets && !(s->missing && s->members)))
        return stream_free(s), NULL;
    for (uint32_t i = 0; i < s->slices; i++) s->exponents[i] = GL_FIRST_EXPONENT;
    for (uint32_t i = 0; i < s->window; i++) s->flights[i].state = FREE;
    for (uint32_t i = s->window; i < s->window + FREE; i++) s->flights[i].next = s->flights[i].before = (uint16_t)i;
    s->allowed = s->window;
    rtt_start(&s->rtt);
    return s;
}

void stream_free(stream *s) {
    if (!s) return;
    for (unsigned k = 0; k < s->count; k++) free(s->parts[k].told), free(s->parts[k].integers);
    free(s->exponents), free(s->contributions), free(s->has), free(s->missing), free(s->members);
    free(s->flights), free(s->datagrams), free(s);
}

void flight_move(stream *s, flight *f, flight_state state) {
    const uint16_t at = (uint16_t)(f - s->flights);
    if (f->state != FREE) s->flights[f->before].next = f->next, s->flights[f->next].before = f->before;
    s->flying -= f->state == FLYING;
    f->state = state;
    if (state == FREE) return;
    s->flying += state == FLYING;
    flight *head = &s->flights[s->window + state];
    f->next = (uint16_t)(s->window + state), f->before = head->before;
    s->flights[head->before].next = at, head->before = at;
}

void stream_slow_down(stream *s, uint64_t now) {
    if (now < s->cut_at + s->rtt.srtt) return;
    s->cut_at = now;
    s->allowed = s->allowed > 2 ? s->allowed / 2 : 1;
}

void stream_clear(job *j, stream *s) {
    for (uint32_t i = 0; i < s->window; i++) flight_move(s, &s->flights[i], FREE);
    timer_stop(j, &s->due);
    s->backoff = s->reminding = 0, s->allowed = s->window;
}
