/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A slice seems lost when enough that were sent later have their sums, or when it has waited for long. In the second case all
 * may just wait for a late worker, which is no sign of loss or congestion: then one slice is sent again. If its sum comes because
 * of that, whatever has waited as long was lost, too; if it comes of itself, the others will. Where nobody may be missing it is
 * the same if it comes because another rank has sent it again: with many ranks most slices may lack somebody, each another one.
 *
 * What the closer can complete without this rank, it is given a round trip for.
 */
#include "sums/lost.h"

#include "sums/closing.h"

enum { LATER_LEAST = 3 }; /* sums of slices that were sent later, after which one counts as lost; an eighth of the window */
enum { WAIT_LEAST = 5000, WAIT_MOST = 200000 }; /* us */
enum { BEGUN_LEAST = 100 };                      /* us, of a step that all have begun: nobody is merely late with it */

static uint64_t wait_of(const stream *s, const flight *f) {
    const uint64_t wait = rtt_overdue(&s->rtt);
    const uint64_t least = !s->members && s->parts[f->part].done ? BEGUN_LEAST : WAIT_LEAST;
    return wait > least ? wait : least;
}

static uint64_t patience_with(const stream *s, const flight *f) {
    const uint64_t longer = wait_of(s, f) << s->backoff;
    return longer < WAIT_MOST ? longer : WAIT_MOST;
}

uint64_t lost_at(const stream *s, const flight *f) {
    uint64_t since = f->sent_at > s->progress_at ? f->sent_at : s->progress_at;
    if (s->asked_at > since) since = s->asked_at;
    return since + patience_with(s, f);
}

/* Nobody need send more slowly for what a budget covers, nor for what may not be lost. */
static void give_up(sums *x, stream *s, flight *f, bool old, uint64_t now) {
    const gl_config *c = &x->job->config;
    const bool closes = closing_begins(c, s, f), deferred = !closes && closing_awaited(c, s, f);
    f->old = old, f->deferred_at = now;
    flight_move(s, f, deferred ? DEFERRED : LOST);
    if (deferred) timer_set(x->job, &s->due, now);
    if (!closes && !deferred && !old) stream_slow_down(s, now);
}

/* What the closer has not completed in time is sent again. */
static void claim(stream *s, uint64_t now) {
    for (flight *f; (f = flight_first(s, DEFERRED)) && f->deferred_at + s->rtt.srtt <= now;) {
        flight_move(s, f, LOST);
        if (!f->old) stream_slow_down(s, now);
    }
}

static bool is_overtaken(const stream *s, const flight *f) {
    const uint32_t late = s->window / 8 > LATER_LEAST ? s->window / 8 : LATER_LEAST;
    return (int32_t)(s->latest - f->sequence) >= (int32_t)late;
}

/* Whether one has waited as long as what was sent again. */
static bool is_stuck(const stream *s, const flight *f, uint64_t now) { return f->sent_at + wait_of(s, f) <= now; }

void lost_learn(sums *x, stream *s, const flight *its, bool repaired, bool asked, uint64_t now) {
    const uint32_t sequence = asked ? its->sequence : its->first_sequence;
    if ((int32_t)(sequence - s->latest) > 0) s->latest = sequence;
    if (asked && its->old && !its->may_miss) stream_slow_down(s, now);
    for (flight *f; (f = flight_first(s, FLYING)) && (is_overtaken(s, f) || (asked && is_stuck(s, f, now)));)
        give_up(x, s, f, false, now);
    if (repaired && !x->budgets)
        for (flight *f; (f = flight_first(s, FLYING)) && is_stuck(s, f, now);) give_up(x, s, f, true, now);
    claim(s, now);
    /* What comes shortens the wait of what was sent before it. */
    const flight *oldest = flight_first(s, FLYING);
    if (oldest && is_set(&s->due) && s->due.item.key > lost_at(s, oldest)) timer_set(x->job, &s->due, lost_at(s, oldest));
}

void on_stream_due(sums *x, stream *s, uint64_t now) {
    uint64_t next = UINT64_MAX;
    if (x->halted) return;
    flight *f = flight_first(s, FLYING);
    if (f && lost_at(s, f) <= now) {
        give_up(x, s, f, true, now);
        s->asked_at = now;
        if (patience_with(s, f) < WAIT_MOST) s->backoff++;
    }
    claim(s, now);
    if ((f = flight_first(s, FLYING))) next = lost_at(s, f);
    if ((f = flight_first(s, DEFERRED)) && f->deferred_at + s->rtt.srtt < next) next = f->deferred_at + s->rtt.srtt;
    if (next < UINT64_MAX) timer_set(x->job, &s->due, next);
}
