/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Sums come back. Each tells who has contributed, and how the network is.
 */
#include <string.h>

#include "arithmetic/fixed_point.h"
#include "base/sender.h"
#include "rate/pacing.h"
#include "sums/closing.h"
#include "sums/lost.h"
#include "sums/parts.h"

static bool are_members(const sums *x, uint32_t members) {
    const uint32_t all = all_workers(&x->job->config);
    return members == all || (x->budgets && members && !(members & ~all));
}

/* What the header says of a sum beside its number, whichever it is. */
static bool is_sum(const sums *x, const uint8_t *h, uint32_t bytes) {
    const gl_config *c = &x->job->config;
    const unsigned kind = h[0] & 15;
    const uint8_t *sum = h + GL_HEADER;
    if (bytes < GL_HEADER + GL_SUM_BYTES || get16(h + GL_AT_LENGTH) != bytes - GL_HEADER) return false;
    return (kind == GL_KIND_DATA || kind == GL_KIND_REPAIR) && h[GL_AT_FLAGS] == (GL_FLAG_SUM | GL_FLAG_PULL) &&
           h[GL_AT_ELEMENT_TYPE] == (c->sums.lanes | GL_SUM << 4) && !get16(h + GL_AT_BUDGET) &&
           !get_way(h) && get_source(h) < c->workers && are_members(x, get32(sum + GL_SUM_AT_MEMBERS));
}

/* Whether it is of what was sent under its number. */
static bool fits(const gl_config *c, const stream *s, const flight *f, const uint8_t *h, uint32_t bytes) {
    const part *p = &s->parts[f->part];
    const uint32_t members = get32(h + GL_HEADER + GL_SUM_AT_MEMBERS);
    const uint8_t *sum = h + GL_HEADER;
    return bytes == f->length && get16(h + GL_AT_TENSOR) == p->is.tensor && get32(h + GL_AT_STEP) == p->step &&
           get16(h + GL_AT_SLICE) == f->slice && get16(h + GL_AT_SLICES) == p->slices &&
           sum[GL_SUM_AT_EXPONENT] == (uint8_t)s->exponents[p->first + f->slice] &&
           is_among(c, members, closer_of(c, s, p)) &&
           get16(sum + GL_SUM_AT_SLOT) == s->tensor * 2 * s->window + f->number % (2 * s->window);
}

/* What this rank has contributed to it, and who has not. */
static void keep(stream *s, const part *p, const flight *f, uint32_t missing) {
    const uint32_t at = p->first + f->slice;
    if (s->kept != p->step) memset(s->has, 0, words(s->slices) * sizeof *s->has), s->kept = p->step, s->reminding = 0;
    set_bit(s->has, at);
    if (s->missing) s->missing[at] = missing;
    memcpy(contribution_of(s, at), datagram_of(s, f), f->length);
}

/* What its coming tells of the network. */
static void learn(sums *x, stream *s, const flight *f, bool repaired, bool asked, bool congested, uint64_t now) {
    if (!f->repaired && !repaired) rtt_sample(&s->rtt, (uint32_t)(now - f->sent_at), 0, false, now);
    if (congested) stream_slow_down(s, now), x->job->statistics.ecn_marked++;
    if (s->allowed < s->window) s->allowed += 1 / s->allowed;
    if (s->allowed > s->window) s->allowed = s->window;
    s->backoff = 0, s->progress_at = now;
    lost_learn(x, s, f, repaired, asked, now);
}

/* Nothing that was awaited. */
static void count_other(sums *x, const stream *s, const flight *f, const uint8_t *h) {
    gl_statistics *count = &x->job->statistics;
    const bool past = s->sequence && (int32_t)(get32(h + GL_AT_MESSAGE) - f->number) <= 0;
    /* Others may be ahead of who is left out. */
    const bool without = !is_among(&x->job->config, get32(h + GL_HEADER + GL_SUM_AT_MEMBERS), x->job->config.rank);
    *(past || without ? &count->sums_duplicate : &count->sums_refused) += 1;
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
    stream *s = is_sum(x, h, bytes) && !x->halted ? sums_find(x, get16(h + GL_AT_TENSOR)) : NULL;
    int32_t integers[GL_MAX_SUM_WORDS * GL_SUM_WORD / 2];
    if (!s || get32(h + GL_HEADER + GL_SUM_AT_GENERATION) != s->generation) return count->sums_refused++, false;
    flight *f = &s->flights[get32(h + GL_AT_MESSAGE) % s->window];
    const uint8_t *lanes = h + GL_HEADER + GL_SUM_BYTES;
    if (f->number != get32(h + GL_AT_MESSAGE) || f->state == FREE) return count_other(x, s, f, h), false;
    part *p = &s->parts[f->part];
    const uint32_t slice = f->slice, n = elements_of(c, p, slice), members = get32(h + GL_HEADER + GL_SUM_AT_MEMBERS);
    const uint32_t zero = how_many(c, members) * gl_lane_limit(c->sums.lanes, c->workers);
    const int64_t most = fits(c, s, f, h, bytes) ? gl_from_lanes(integers, lanes, c->sums.lanes, zero, n) : -1;
    if (most < 0) return count->sums_refused++, false;
    if (!closing_permits(c, s, f, members)) return count->sums_over_budget++, false;
    closing_came(c, s, f, members, h[GL_HEADER + GL_SUM_AT_EPOCH]);
    keep(s, p, f, all_workers(c) & ~members);
    if (!is_among(c, members, c->rank)) part_owe(x, s, p, slice);
    if (members != all_workers(c) && is_closer(c, s, p)) count->sums_closed++;
    const flight was = *f;
    flight_move(s, f, FREE);
    /* It has the headers of the contribution that has brought it. */
    const bool repaired = (h[0] & 15) == GL_KIND_REPAIR;
    learn(x, s, &was, repaired, repaired && get_source(h) == c->rank, congested, now);
    meter_count(&x->job->tenant.in, bytes + FRAME_OVERHEAD, meter_window(&x->job->tenant), now);
    count->sums_received++;
    part_take(x, s, p, slice, integers, most);
    if (!p->done) note_wait(&x->waits, p, now);
    if (++p->done == p->slices) part_complete(x, s, p);
    return true;
}
