/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Messages get their numbers, and a place in the queue of their lane: the slice of the front-most layer goes first.
 */
#include "tx/queue.h"

#include <stdlib.h>

#include "base/sender.h"
#include "tx/lanes.h"
#include "tx/message.h"

enum { WINDOW_WAIT = 50000 }; /* us for which the window may stand still */

tx_message *tx_message_new(tx *x, const plan *p, link *l) {
    const gl_config *c = &x->job->config;
    const bool multicast = l->rank == x->job->ranks;
    const unsigned targets = multicast ? c->workers - !is_server(c) : 1;
    tx_message *m = calloc(1, sizeof *m + targets * sizeof *m->target);
    if (!m) return NULL;
    m->lane = &x->lanes[l->rank], m->link = l, m->plan = p, m->slices = l->slices, m->loss_class = p->loss_class;
    bool waits = false;
    for (unsigned k = 0; k < l->count; k++)
        *(l->segments[k].node->from_count ? &waits : &m->reads_own) = true;
    m->sent_at = calloc(m->slices, sizeof *m->sent_at);
    m->flow_sequence = calloc(m->slices, sizeof *m->flow_sequence);
    waits |= p->turns != NULL;
    m->queue = waits ? calloc(m->slices, sizeof *m->queue) : NULL;
    if (!m->sent_at || !m->flow_sequence || (waits && !m->queue)) return tx_message_free(x, m), NULL;
    for (unsigned rank = 0; m->targets < targets; rank++) {
        if (multicast && rank == c->rank) continue;
        m->target[m->targets].message = m;
        m->target[m->targets++].rank = multicast ? (uint16_t)rank : l->rank;
    }
    uint8_t *h = m->header;
    h[0] = GL_VERSION << 4;
    put16(h + GL_AT_JOB, c->job), put_sender(h, 0, c->rank);
    put32(h + GL_AT_STEP, p->step), put16(h + GL_AT_TENSOR, p->tensor);
    h[GL_AT_FLAGS] = (l->pull ? GL_FLAG_PULL : 0) | (multicast ? GL_FLAG_MULTICAST : 0) |
                       (p->critical && !l->pull ? GL_FLAG_CRITICAL : 0);
    h[GL_AT_ELEMENT_TYPE] = p->encoding;
    put16(h + GL_AT_SLICES, (uint16_t)m->slices);
    put64(h + GL_AT_TOKEN, c->token);
    return m;
}

static tx_message **slot_of(tx *x, uint32_t id) {
    return &x->sent[((id - x->job->config.message_base - x->job->config.rank) >> x->job->stride_bits) % RING];
}

static void leave_queues(tx *x, tx_message *m) {
    if (!m->started) return;
    heap_remove(m->active ? &m->lane->messages : &x->waiting[m->budget > 0], &m->turn);
    for (unsigned i = 0; i < m->targets; i++) {
        target *t = &m->target[i];
        timer_stop(x->job, &t->probe);
        heap_remove(&x->lanes[t->rank].repairs, &t->turn);
        lane_less(x, &x->lanes[t->rank], t->repairs);
    }
    if (m->active) {
        lane_less(x, m->lane, m->ready - m->sent);
        *slot_of(x, m->id) = NULL;
    }
    x->unstopped--;
}

void tx_message_free(tx *x, tx_message *m) {
    if (!m) return;
    leave_queues(x, m);
    for (unsigned i = 0; i < m->targets; i++)
        free(m->target[i].todo), free(m->target[i].repaired_at), free(m->target[i].repair_sequence);
    free(m->queue), free(m->sent_at), free(m->flow_sequence), free(m);
}

/* Whether there is a number: of two messages with a budget, so that they have different slots in the switch, within the
 * window; of others, which use no slots, within what both ends remember. */
static bool has_number(tx *x, bool tolerant) {
    const tx_message *const *sent = (const tx_message *const *)x->sent;
    for (; x->oldest_sequence != x->next_sequence && !sent[x->oldest_sequence % RING]; x->oldest_sequence++)
        if (x->oldest_tolerant == x->oldest_sequence) x->oldest_tolerant++;
    while (x->oldest_tolerant != x->next_sequence &&
           (!sent[x->oldest_tolerant % RING] || !sent[x->oldest_tolerant % RING]->budget))
        x->oldest_tolerant++;
    if (x->next_sequence - x->oldest_sequence >= RING / 2) return false;
    return !tolerant || x->next_sequence - x->oldest_tolerant < x->job->config.window;
}

void activate(tx *x) {
    for (unsigned tolerant = 0; tolerant < 2; tolerant++) {
        for (heap_item *first; (first = heap_first(&x->waiting[tolerant])) && has_number(x, tolerant);) {
            tx_message *m = container_of(first, tx_message, turn);
            heap_remove(&x->waiting[tolerant], first);
            m->id = x->job->config.message_base + (x->next_sequence << x->job->stride_bits) + x->job->config.rank;
            m->active = true;
            for (unsigned i = 0; i < m->targets; i++) m->target[i].probed = m->lane->flow.sequence;
            put32(m->header + GL_AT_MESSAGE, m->id);
            x->sent[x->next_sequence++ % RING] = m;
            queue_put(x->job, &m->lane->messages, &m->turn, key_of(x, m));
            lane_more(x, m->lane, m->ready);
            m->traced = x->job->config.trace_every && m->lane->begun++ % x->job->config.trace_every == 0;
            x->job->statistics.messages_sent++;
        }
    }
}

void watch_window(tx *x, uint64_t now) {
    if (x->waiting[1].count && !is_set(&x->window)) timer_set(x->job, &x->window, now + WINDOW_WAIT);
}

/* What is in the window may wait for room at its receivers, which comes with others' contributions, and these may wait for
 * their own windows. So where nothing moves one message goes without a budget, and needs no place in the window. */
void on_window_due(tx *x, uint64_t now) {
    heap_item *first = heap_first(&x->waiting[1]);
    if (!first || now - x->moved_at < WINDOW_WAIT) return;
    tx_message *m = container_of(first, tx_message, turn);
    heap_remove(&x->waiting[1], first);
    m->budget = 0;
    put16(m->header + GL_AT_BUDGET, 0);
    queue_put(x->job, &x->waiting[0], &m->turn, key_of(x, m));
    activate(x);
}

static void start(tx *x, tx_message *m) {
    const link *l = m->link;
    m->started = true;
    /* A server knows only now in which phase its workers are. */
    m->budget = budget_of(loss_of(l, m->plan), l->slices);
    put16(m->header + GL_AT_BUDGET, (uint16_t)m->budget);
    m->order = x->order++;
    x->unstopped++;
    queue_put(x->job, &x->waiting[m->budget > 0], &m->turn, key_of(x, m));
    activate(x);
}

void tx_begin(tx *x, tx_message *m) {
    if (!m->reads_own) return;
    for (unsigned k = 0; k < m->link->count; k++) {
        const segment *s = &m->link->segments[k];
        if (s->node->from_count || s->turn) continue;
        for (uint32_t i = 0; m->queue && i < s->node->slices; i++) m->queue[m->ready + i] = (uint16_t)(s->start + i);
        m->ready += s->node->slices;
    }
    if (m->ready) start(x, m);
}

static bool is_ready(const node *n, uint32_t i) {
    return !n->from_count || (n->final ? !n->final->awaited[i] : n->results[i] || test_bit(n->empty, i));
}

void tx_turn(tx *x, const plan *p) {
    turns *t = p->turns;
    while (t && !t->unsent && t->turn < t->count) {
        const node *after = t->of[t->turn].after;
        if (after && after->done < after->slices) return;
        const link *l = t->of[t->turn].link;
        const segment *s = &l->segments[t->of[t->turn++].segment];
        if (!l->sent) continue;
        t->unsent = s->node->slices;
        for (uint32_t i = 0; i < s->node->slices; i++)
            if (is_ready(s->node, i)) tx_ready(x, l->sent, s->start + i);
    }
}

void tx_ready(tx *x, tx_message *m, uint32_t slice) {
    if (m->plan->turns && find_segment(m->link, slice)->turn > m->plan->turns->turn) return;
    m->queue[m->ready++] = (uint16_t)slice;
    if (!m->started) {
        start(x, m);
    } else if (m->active) {
        lane_more(x, m->lane, 1);
        if (m->sent + 1 == m->ready) queue_put(x->job, &m->lane->messages, &m->turn, key_of(x, m));
    }
}

tx_message *find_sent(tx *x, uint32_t id) {
    tx_message *m = *slot_of(x, id);
    return m && m->id == id ? m : NULL;
}

target *find_target(tx_message *m, unsigned rank) {
    for (unsigned i = 0; i < m->targets; i++)
        if (m->target[i].rank == rank) return &m->target[i];
    return NULL;
}
