/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums come back. Each tells that all have contributed, and how the network is.
 */
#include <string.h>

#include "arithmetic/fixed_point.h"
#include "rate/pacing.h"
#include "sums/parts.h"

enum { LATER_LEAST = 3 }; /* sums of slices that were sent later, after which one counts as lost; an eighth of the window */

/* What the header says of a sum beside its number, whichever it is. */
static bool is_sum(const gl_config *c, const uint8_t *h, uint32_t bytes) {
    const unsigned kind = h[0] & 15;
    const uint8_t *sum = h + GL_HEADER;
    if (bytes < GL_HEADER + GL_SUM_BYTES || get16(h + GL_AT_LENGTH) != bytes - GL_HEADER) return false;
    return (kind == GL_KIND_DATA || kind == GL_KIND_REPAIR) && h[GL_AT_FLAGS] == (GL_FLAG_SUM | GL_FLAG_PULL) &&
           h[GL_AT_ELEMENT_TYPE] == (c->sums.lanes | GL_SUM << 4) && !get16(h + GL_AT_BUDGET) &&
           get16(h + GL_AT_SOURCE) < c->workers &&
           get32(sum + GL_SUM_AT_MEMBERS) == UINT32_MAX >> (32 - c->workers);
}

/* Whether it is of what was sent under its number. */
static bool fits(const stream *s, const flight *f, const uint8_t *h, uint32_t bytes) {
    const part *p = &s->parts[f->part];
    const uint8_t *sum = h + GL_HEADER;
    return bytes == f->length && get16(h + GL_AT_TENSOR) == p->is.tensor && get32(h + GL_AT_STEP) == p->step &&
           get16(h + GL_AT_SLICE) == f->slice && get16(h + GL_AT_SLICES) == p->slices &&
           sum[GL_SUM_AT_EXPONENT] == (uint8_t)s->exponents[p->first + f->slice] &&
           get16(sum + GL_SUM_AT_SLOT) == s->tensor * 2 * s->window + f->number % (2 * s->window);
}

/* What this rank has contributed to it. */
static void keep(const gl_config *c, stream *s, const part *p, const flight *f) {
    const uint32_t head = GL_HEADER + GL_SUM_BYTES;
    if (s->kept != p->step) memset(s->has, 0, words(s->slices) * sizeof *s->has), s->kept = p->step;
    set_bit(s->has, p->first + f->slice);
    memcpy(s->lanes + (uint64_t)(p->first + f->slice) * stream_lane_bytes(c), datagram_of(s, f) + head, f->length - head);
}

/* What its coming tells of the network. */
static void learn(sums *x, stream *s, const flight *f, bool congested, uint64_t now) {
    const uint32_t late = s->window / 8 > LATER_LEAST ? s->window / 8 : LATER_LEAST;
    if (!f->repaired) rtt_sample(&s->rtt, (uint32_t)(now - f->sent_at), 0, false, now);
    if ((int32_t)(f->sequence - s->latest) > 0) s->latest = f->sequence;
    if (congested) stream_slow_down(s, now), x->job->statistics.ecn_marked++;
    if (s->allowed < s->window) s->allowed += 1 / s->allowed;
    if (s->allowed > s->window) s->allowed = s->window;
    s->backoff = 0, s->progress_at = now;
    for (flight *first; (first = flight_first(s, FLYING)) && (int32_t)(s->latest - first->sequence) >= (int32_t)late;) {
        flight_move(s, first, LOST);
        stream_slow_down(s, now);
    }
}

/* The first sum of a part's step: all have come to it. */
static void note_wait(gl_sum_waits *w, const part *p, uint64_t now) {
    const unsigned slot = p->step % GL_LATE_STEPS;
    if (p->step < w->step[slot] || (p->step == w->step[slot] && p->is.tensor < w->tensor[slot])) return;
    w->step[slot] = p->step, w->tensor[slot] = p->is.tensor;
    w->waited[slot] = now - p->since < UINT32_MAX ? (uint32_t)(now - p->since) : UINT32_MAX;
}

bool sums_receive(sums *x, const uint8_t *h, uint32_t bytes, bool congested, uint64_t now) {
    const gl_config *c = &x->job->config;
    gl_statistics *count = &x->job->statistics;
    stream *s = is_sum(c, h, bytes) && !x->halted ? sums_find(x, get16(h + GL_AT_TENSOR)) : NULL;
    int32_t integers[GL_MAX_SUM_WORDS * GL_SUM_WORD / 2];
    if (!s || get32(h + GL_HEADER + GL_SUM_AT_GENERATION) != s->generation) return count->sums_refused++, false;
    flight *f = &s->flights[get32(h + GL_AT_MESSAGE) % s->window];
    const uint8_t *lanes = h + GL_HEADER + GL_SUM_BYTES;
    if (f->number != get32(h + GL_AT_MESSAGE) || f->state == FREE) {
        const bool past = s->sequence && (int32_t)(get32(h + GL_AT_MESSAGE) - f->number) <= 0;
        *(past ? &count->sums_duplicate : &count->sums_refused) += 1;
        return false;
    }
    part *p = &s->parts[f->part];
    const uint32_t slice = f->slice, n = elements_of(c, p, slice), zero = c->workers * gl_lane_limit(c->sums.lanes, c->workers);
    const int64_t most = fits(s, f, h, bytes) ? gl_from_lanes(integers, lanes, c->sums.lanes, zero, n) : -1;
    if (most < 0) return count->sums_refused++, false;
    keep(c, s, p, f);
    const flight was = *f;
    flight_move(s, f, FREE);
    learn(x, s, &was, congested, now);
    meter_count(&x->job->tenant.in, bytes + FRAME_OVERHEAD, meter_window(&x->job->tenant), now);
    count->sums_received++;
    part_take(x, s, p, slice, integers, most);
    if (!p->done) note_wait(&x->waits, p, now);
    if (++p->done == p->slices) part_complete(x, s, p);
    return true;
}
