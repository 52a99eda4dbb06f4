/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The end of a message at its sender: PROBE, and repair of just what a BITMAP says is missing, until STOP.
 */
#include "tx/repair.h"

#include <stdlib.h>

#include "job/controls.h"
#include "tx/lanes.h"
#include "tx/message.h"
#include "tx/queue.h"

enum {
    PROBES_ALIKE = 16,       /* equally far apart: what is lost by chance, an answer among it, is asked for soon again */
    PROBE_WAIT_MAX = 100000, /* us */
};

/* A PROBE overtakes slices that still queue, so it waits for the queues that the rate control allows. */
static uint32_t patience(const tx *x, const target *t) {
    return rtt_overdue(&x->job->rtts[t->rank]) + (uint32_t)(x->job->uplink.queue_time / 2);
}

/* us for which a slice may be on its way: no longer than until it is asked for, or what answers to that would be in vain. */
static uint32_t under_way(const tx *x, const target *t) {
    const rtt *path = &x->job->rtts[t->rank];
    const uint32_t most = patience(x, t), usual = path->srtt + rtt_spread(path, path->srtt / 4);
    return usual < most ? usual : most;
}

void arm_probe(tx *x, target *t, uint64_t now) {
    t->probes = 0, t->probe_wait = patience(x, t);
    timer_set(x->job, &t->probe, now + t->probe_wait);
}

static void send_probe(tx *x, target *t) {
    uint8_t h[GL_HEADER];
    t->probed = t->message->lane->flow.sequence;
    put_header(x, h, t->message, GL_KIND_PROBE, 0);
    if (t->message->sent == t->message->slices) h[GL_AT_FLAGS] |= GL_FLAG_END;
    send_control(x->job, t->rank, GL_KIND_PROBE, h, NULL, 0);
    x->job->statistics.probes_sent++;
}

void ask_receiver(tx *x, lane *l, uint64_t now) {
    flow_asked(&l->flow, now);
    lane_changed(x, l);
    tx_message *m = find_sent(x, l->latest);
    /* Of several receivers one that does not answer would hold up the answers of the others. */
    if (m && m->lane == l && m->targets == 1 && !m->target[0].stopped) send_probe(x, &m->target[0]);
}

/* The receiver has answered when what is in flight was either there or lost. */
static void on_answer(tx *x, const tx_message *m, unsigned source, bool has_all, uint64_t now) {
    lane *l = m->lane;
    if (!l->flow.asked || m->id != l->latest) return;
    if (has_all)
        flow_acknowledge(&l->flow, receiver_of(x, l, source), m->last_sequence + 1, now);
    else
        flow_give_up(&l->flow);
    lane_changed(x, l);
}

void on_probe_due(tx *x, target *t, uint64_t now) {
    if (!t->repairs) {
        send_probe(x, t);
        if (t->probes < PROBES_ALIKE)
            t->probes++, t->probe_wait = patience(x, t);
        else if (t->probe_wait < PROBE_WAIT_MAX)
            t->probe_wait += t->probe_wait / 4;
    }
    timer_set(x->job, &t->probe, now + t->probe_wait);
}

/* The target that an answer is from. NULL: it is not about what is in flight. */
static target *answering(tx *x, unsigned source, const uint8_t *h) {
    tx_message *m = find_sent(x, get32(h + GL_AT_MESSAGE));
    target *t = m ? find_target(m, source) : NULL;
    if (!t || t->stopped) return NULL;
    if (get16(h + GL_AT_LENGTH) == (m->slices + 7) / 8) return t;
    return x->job->statistics.bad_length++, NULL;
}

void on_stop(tx *x, unsigned source, const uint8_t *h, const uint8_t *bits, uint64_t now) {
    target *t = answering(x, source, h);
    if (!t) return;
    tx_message *m = t->message;
    flow *f = &m->lane->flow;
    if (m->sent) flow_acknowledge(f, receiver_of(x, m->lane, source), m->last_sequence + 1, now), lane_changed(x, m->lane);
    t->stopped = true;
    timer_stop(x->job, &t->probe);
    heap_remove(&x->lanes[t->rank].repairs, &t->turn);
    lane_less(x, &x->lanes[t->rank], t->repairs);
    t->repairs = 0;
    if (++m->stopped < m->targets) return;
    x->job->up->stopped(x->job->above, m, bits);
    activate(x);
}

static bool is_there(const uint8_t *bits, uint32_t slice) { return bits[slice >> 3] >> (slice & 7) & 1; }

/* What of the first pass was sent before this slice is there or lost: a later one has arrived, or was asked for since then
 * (as RACK, RFC 8985). However long the others take, they may be in a queue. */
static uint32_t known_until(const tx *x, const target *t, const uint8_t *bits) {
    const tx_message *m = t->message;
    uint32_t known = receiver_of(x, m->lane, t->rank)->acknowledged;
    if ((int32_t)(t->probed - known) > 0) known = t->probed;
    for (uint32_t i = m->sent; i--;) {
        const uint32_t slice = m->queue ? m->queue[i] : i;
        if (!is_there(bits, slice)) continue;
        return (int32_t)(m->flow_sequence[slice] - known) > 0 ? m->flow_sequence[slice] : known;
    }
    return known;
}

/* Repairs what a BITMAP misses beyond what it says may stay missing, the largest magnitudes first: the budget is for the
 * rest. Returns whether the receiver has all that was sent; `unknown`: whether something of the rest may still be on its way. */
static bool queue_repairs(tx *x, target *t, const uint8_t *h, const uint8_t *bits, bool *unknown, uint64_t now) {
    const tx_message *m = t->message;
    const bool settled = h[GL_AT_FLAGS] & GL_FLAG_END; /* nothing of the first pass is in flight any more */
    const uint32_t told = get16(h + GL_AT_BUDGET), spare = told < m->budget ? told : m->budget;
    const uint32_t in_flight = under_way(x, t), known = known_until(x, t, bits);
    uint16_t missing[GL_MAX_SLICES];
    uint32_t count = 0, outstanding = 0, by_magnitude[256] = {0};
    for (uint32_t i = 0; i < m->sent; i++) {
        const uint32_t slice = m->queue ? m->queue[i] : i;
        const bool repaired = t->repaired_at[slice];
        if (is_there(bits, slice)) continue;
        outstanding++;
        if (test_bit(t->todo, slice)) continue;
        const bool later = !repaired && !settled && (int32_t)(m->flow_sequence[slice] - known) >= 0;
        const uint32_t age = (uint32_t)now - (repaired ? t->repaired_at : m->sent_at)[slice];
        if (later || ((repaired || !settled) && age < in_flight)) {
            *unknown = true;
            continue;
        }
        missing[count++] = (uint16_t)slice;
        by_magnitude[view_of(x, m, slice).magnitude]++;
    }
    if (count <= spare) return !outstanding;
    uint32_t need = count - spare;
    unsigned least = 255;
    for (uint32_t above = by_magnitude[255]; above < need; above += by_magnitude[least]) least--;
    uint32_t of_least = need;
    for (unsigned magnitude = least + 1; magnitude < 256; magnitude++) of_least -= by_magnitude[magnitude];
    if (!t->repairs) queue_put(x->job, &x->lanes[t->rank].repairs, &t->turn, x->order++);
    for (uint32_t i = 0; i < count; i++) {
        const unsigned magnitude = view_of(x, m, missing[i]).magnitude;
        if (magnitude < least || (magnitude == least && !of_least)) continue;
        of_least -= magnitude == least;
        set_bit(t->todo, missing[i]);
        t->repairs++;
        lane_more(x, &x->lanes[t->rank], 1);
    }
    return false;
}

void on_bitmap(tx *x, unsigned source, const uint8_t *h, const uint8_t *bits, uint64_t now) {
    target *t = answering(x, source, h);
    if (!t) return;
    const tx_message *m = t->message;
    if (!t->todo) {
        t->todo = calloc(words(m->slices), sizeof *t->todo);
        t->repaired_at = calloc(m->slices, sizeof *t->repaired_at);
        t->repair_sequence = calloc(m->slices, sizeof *t->repair_sequence);
        if (!t->todo || !t->repaired_at || !t->repair_sequence) {
            free(t->todo), free(t->repaired_at), free(t->repair_sequence);
            t->todo = NULL, t->repaired_at = t->repair_sequence = NULL;
            return;
        }
    }
    bool unknown = false;
    const bool has_all = queue_repairs(x, t, h, bits, &unknown, now);
    on_answer(x, m, source, has_all, now);
    if (m->sent < m->slices && has_all)
        timer_stop(x->job, &t->probe);
    /* Only a PROBE tells of what is last in flight: BITMAPs that come more often than it is due must not put it off. */
    else if (is_set(&t->probe) ? !unknown || t->repairs : m->sent == m->slices)
        arm_probe(x, t, now);
}
