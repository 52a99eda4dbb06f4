/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Operations in flight: nodes (plan.h) take in what arrives, reduce it in rank order as soon as nothing is awaited any more,
 * and pass the result on while other slices still come. A contribution is kept only if it has to wait for others, where its
 * datagram lies if that may be held; the last one is reduced straight from its datagram.
 */
#include "operation/operation.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic/reduce.h"
#include "arithmetic/types.h"
#include "base/bits.h"
#include "operation/streams.h"
#include "operation/table.h"
#include "operation/waiting.h"

enum { HELD_UP = 5000 }; /* us; who notices a deadline so late was held up itself, and others may have come meanwhile */

/* An operation without anything left to do is told, and gone once nobody may ask for a repair of it. */
static void maybe_over(operations *all, operation *o) {
    if (o->open) return;
    timer_stop(all->job, &o->deadline);
    if (!o->told) arrivals_note(&all->arrivals, &all->job->config, &o->plan, o->since);
    if (o->local && !o->told) add_event(all, GL_EVENT_COMPLETED, o, 0);
    o->told = true;
    if (!o->unstopped) operation_free(all, o);
}

/* Counts down what a slice still waits for; returns whether that was the last. */
static bool last_awaited(node *n, uint32_t i) { return !n->awaited || !--n->awaited[i]; }

static void send_on(operations *all, const node *n, uint32_t i) {
    for (unsigned k = 0; k < n->to_count; k++)
        if (n->to[k].link->sent) tx_ready(all->tx, n->to[k].link->sent, n->to[k].start + i);
}

/* Nothing more is awaited for a slice: it is reduced and passed on. `lost`: it came from one rank alone, and did not arrive. */
static void finish(operations *all, node *n, uint32_t i, unsigned fresh, const uint8_t *payload, bool lost) {
    operation *o = operation_of(n->plan);
    job *j = all->job;
    unsigned contributors;
    const unsigned count = contributions(&j->config, n, i, fresh, payload, all->sources, &contributors);
    const uint32_t length = length_of(&j->config, n, i);
    const uint64_t offset = (uint64_t)i * j->config.slice_bytes;
    uint8_t *out = n->out ? n->out + offset : NULL;
    if (count && n->to_count) {
        /* What has come last is kept where it lies, and becomes the result there. */
        n->results[i] = payload ? slot_of_payload(j, payload) : slot_new(&j->pool);
        if (!n->results[i]) {
            j->failed = true;
            return;
        }
    }
    if (count) {
        uint8_t *result = n->to_count ? n->results[i]->bytes : out;
        reduce_slice(result, all->sources, count, reduction_of(o->plan.encoding), n->divisor ? n->divisor : contributors, length,
                     type_of(o->plan.encoding));
        if (n->to_count && out) memcpy(out, result, length);
    } else {
        if (n->to_count) set_bit(n->empty, i);
        if (out && lost && n->instead)
            memmove(out, n->instead + offset, length);
        else if (out)
            memset(out, 0, length);
    }
    waiting_drop(j, n, i);
    if (!n->final) send_on(all, n, i);
    if (n->partial) send_on(all, n->partial, i);
    if (n->final && last_awaited(n->final, i)) finish(all, n->final, i, 0, NULL, false);
    while (n->awaited && n->floor < n->slices && !n->awaited[n->floor]) n->floor++;
    if (++n->done < n->slices) return;
    for (unsigned k = 0; o->plan.turns && k < n->from_count; k++)
        if (n->from[k].link->meeting == 1) share_end(&j->tenant, n->from[k].link->rank);
    tx_turn(all->tx, &o->plan);
    o->open--;
    maybe_over(all, o);
}

static void on_arrived(void *above, rx_message *m, uint32_t slice, uint16_t layer, const uint8_t *payload,
                       uint32_t length) {
    operations *all = above;
    if (is_server(&all->job->config)) m->operation->plan.layers[slice] = layer;
    if (!m->link) {
        if (length) rx_keep_early(all->job, m, slice, payload, length);
        return;
    }
    const segment *s = find_segment(m->link, slice);
    node *n = s->node;
    const uint32_t i = slice - s->start;
    if (i == n->slices - 1 && !n->last_length) n->last_length = length;
    if (last_awaited(n, i))
        finish(all, n, i, s->from, length ? payload : NULL, false);
    else
        waiting_put(all->job, n, i, s->from, payload, length, all->sources);
}

static uint32_t first_of(const link *l) { return l->segments[0].node->first; }

/* Its words as bytes: hosts are little-endian, as elements on the wire are. */
static const uint8_t *arrived_of(const rx_message *m) { return (const uint8_t *)m->arrived; }

static void on_lost(void *above, rx_message *m) {
    if (m->link->pull) tell_lost(above, m->operation, GL_EVENT_MISSED, first_of(m->link), m->slices, arrived_of(m));
    for (uint32_t slice = 0; m->link && slice < m->slices; slice++) {
        if (test_bit(m->arrived, slice)) continue;
        const segment *s = find_segment(m->link, slice);
        if (last_awaited(s->node, slice - s->start)) finish(above, s->node, slice - s->start, 0, NULL, true);
    }
}

/* Told once of each rank: the sender goes on, and there is nothing new in what comes. */
static void mismatch(operations *all, operation *o, const rx_message *m) {
    if (!o->mismatched && !(o->mismatched = calloc(words(all->job->ranks), sizeof *o->mismatched))) {
        all->job->failed = true;
        return;
    }
    if (test_bit(o->mismatched, m->source)) return;
    set_bit(o->mismatched, m->source);
    gl_event *event = add_event(all, GL_EVENT_MISMATCH, o, 0);
    if (!event) return;
    event->source = m->source, event->slices = m->slices;
}

/* Gives a message the link that it is of. False: it does not fit, which is told. */
static bool take_link(operations *all, operation *o, rx_message *m) {
    link *l = find_link(&o->plan, true, m->source, m->flags & GL_FLAG_PULL);
    if (!l || l->received || l->slices != m->slices || o->plan.encoding != m->encoding ||
        (m->tensor >= GL_FIRST_GROUP && m->budget > budget_of(loss_of(l, &o->plan), m->slices))) {
        mismatch(all, o, m);
        return false;
    }
    l->received = m;
    m->link = l, m->operation = o;
    /* A server knows what the class tolerates of a result, not what this operation does, which may be nothing. */
    const uint32_t budget = budget_of(loss_of(l, &o->plan), m->slices);
    if (l->pull && budget < m->budget) m->budget = budget;
    return true;
}

/* What has come of a message before its operation was submitted. */
static void take_early(operations *all, operation *o, rx_message *m) {
    if (!take_link(all, o, m)) {
        rx_detach(all->job, m);
        return;
    }
    if (m->complete && m->link->pull) tell_lost(all, o, GL_EVENT_MISSED, first_of(m->link), m->slices, arrived_of(m));
    for (uint32_t slice = 0; slice < m->slices; slice++) {
        const segment *s = find_segment(m->link, slice);
        node *n = s->node;
        const uint32_t i = slice - s->start;
        slot *kept = m->kept ? m->kept[slice] : NULL;
        const bool arrived = test_bit(m->arrived, slice);
        if (kept && get16(kept->header + GL_AT_LENGTH) != length_of(&all->job->config, n, i)) {
            mismatch(all, o, m);
            return;
        }
        if (kept) {
            if (!n->waiting && !waiting_new(n)) {
                all->job->failed = true;
                return;
            }
            m->kept[slice] = NULL;
            waiting_put_kept(all->job, n, i, s->from, kept, all->sources);
        }
        if ((arrived || m->complete) && last_awaited(n, i)) finish(all, n, i, 0, NULL, !arrived);
    }
    free(m->kept);
    m->kept = NULL;
}

/* From the `first` one on. */
static bool nodes_begin(const operations *all, operation *o, unsigned first) {
    for (unsigned k = first; k < o->plan.node_count; k++) {
        node *n = o->plan.nodes[k];
        n->unsent = n->to_count + o->absent; /* the results wait for this rank, too */
        if (!n->from_count) {
            if (n->out && n->out != n->own) memmove(n->out, n->own, n->bytes);
            continue;
        }
        o->open++;
        place_contributions(n, all->job->config.rank);
        const unsigned awaited = n->from_count + (n->partial != NULL);
        if (awaited > 1) {
            if (!(n->awaited = malloc(n->slices * sizeof *n->awaited))) return false;
            for (uint32_t i = 0; i < n->slices; i++) n->awaited[i] = (uint16_t)awaited;
            if (!waiting_new(n)) return false;
        }
        if (!n->to_count) continue;
        n->results = calloc(n->slices, sizeof *n->results);
        n->empty = calloc(words(n->slices), sizeof *n->empty);
        if (!n->results || !n->empty) return false;
    }
    return true;
}

/* Contributions of one more worker begin to come. From the first half on the others have a time for it. */
static void count_in(operations *all, operation *o, uint64_t now) {
    leaving *l = &all->leaving;
    if (!l->steps || o->plan.tensor >= GL_FIRST_GROUP) return;
    if (o->plan.step > l->latest) l->latest = o->plan.step;
    if (++o->begun == (all->job->config.workers + 1) / 2) timer_set(all->job, &o->deadline, now + l->after);
}

/* Goes on without the workers that have not come, as far as they may be left out: as if all that they send had been lost. */
static void leave_late(operations *all, operation *o, uint64_t now) {
    o->open++;
    for (link *l = o->plan.incoming; l && o->plan.late; l = l->next) {
        if (l->pull || l->received || !leave_out(&all->leaving, o->plan.tensor, l->rank, o->plan.step)) continue;
        l->left_at = now;
        for (uint32_t slice = 0; slice < l->slices; slice++) {
            const segment *s = find_segment(l, slice);
            if (last_awaited(s->node, slice - s->start)) finish(all, s->node, slice - s->start, 0, NULL, false);
        }
    }
    o->open--;
    maybe_over(all, o);
}

void on_deadline(operations *all, operation *o, uint64_t now) {
    if (now > o->deadline.item.key + HELD_UP) {
        timer_set(all->job, &o->deadline, now + all->leaving.after);
        return;
    }
    o->overdue = true;
    if (o->planned)
        leave_late(all, o, now);
    else if (may_leave_out(&all->leaving, o->plan.tensor, all->job->config.rank, o->plan.step))
        add_event(all, GL_EVENT_LATE, o, 0);
}

/* Of an operation that has its nodes; those from `first` on, and the messages from `outgoing` on, are new. False: memory is
 * out. */
static bool go(operations *all, operation *o, unsigned first, link *outgoing, uint64_t now) {
    o->planned = true, o->since = now;
    o->open++; /* one more until all of it is in flight */
    bool fits = nodes_begin(all, o, first);
    for (link *l = outgoing; l && fits; l = l->next) {
        if (!(l->sent = tx_message_new(all->tx, &o->plan, l))) {
            fits = false;
            break;
        }
        o->unstopped++;
        o->open += l->sent->reads_own;
    }
    if (!fits) return !(all->job->failed = true); /* others may send to what is only half there */
    for (link *l = outgoing; l; l = l->next) tx_begin(all->tx, l->sent);
    tx_turn(all->tx, &o->plan);
    if (o->local) count_in(all, o, now);
    rx_message *m = o->early;
    if (m) plan_streams(all, o);
    o->early = NULL;
    for (rx_message *next; m; m = next) {
        next = m->next_early;
        if (o->absent && m->flags & GL_FLAG_PULL) {
            m->next_early = o->early, o->early = m;
            continue;
        }
        take_early(all, o, m);
        if (!m->link || m->complete) continue;
        expect_streams(all, m, now);
        rx_resume(all->rx, m, now);
    }
    o->open--;
    if (o->overdue)
        leave_late(all, o, now);
    else
        maybe_over(all, o);
    return true;
}

static bool begin(operations *all, operation *o, uint64_t now) {
    operation_insert(all, o);
    return go(all, o, 0, o->plan.outgoing, now);
}

/* This rank comes to an operation that began without it: nothing of what it has for its own part counts. */
static bool join(operations *all, operation *o, const gl_submission *s, uint64_t now) {
    const unsigned first = o->plan.node_count;
    node *owned = o->plan.nodes[0];
    link **outgoing = &o->plan.outgoing;
    while (*outgoing) outgoing = &(*outgoing)->next;
    if (!s->late || !plan_worker(&o->plan, &all->job->config, s)) return !(all->job->failed = true);
    o->local = true, o->absent = false, o->open--;
    owned->out = s->out + (uint64_t)owned->first * all->job->config.slice_bytes;
    tell_lost(all, o, GL_EVENT_LOST, owned->first, owned->slices, NULL);
    for (uint32_t i = 0; i < owned->slices; i++) {
        uint8_t *out = owned->out + (uint64_t)i * all->job->config.slice_bytes;
        const uint32_t length = length_of(&all->job->config, owned, i);
        if (owned->results[i]) memcpy(out, owned->results[i]->bytes, length);
        if (test_bit(owned->empty, i)) memset(out, 0, length);
    }
    if (!--owned->unsent) results_free(all->job, owned);
    return go(all, o, first, *outgoing, now);
}

/* Takes over what has come of an operation before it was submitted. */
static void replace(operations *all, operation *early, operation *o) {
    o->early = early->early, o->begun = early->begun, o->overdue = early->overdue;
    if (is_set(&early->deadline)) timer_set(all->job, &o->deadline, early->deadline.item.key);
    early->early = NULL;
    for (rx_message *m = o->early; m; m = m->next_early) m->operation = o;
    operation_free(all, early);
}

int operation_submit(operations *all, const gl_submission *s, uint64_t now) {
    const gl_config *c = &all->job->config;
    operation *early = find_operation(all, s->step, s->tensor);
    const bool absent = s->late && !s->in;
    if (!submission_is_valid(c, s) || test_bit(all->closed, s->tensor)) return -1;
    if (early && early->planned) return early->absent && !absent && join(all, early, s, now) ? 0 : -1;
    operation *o = operation_new(s->step, s->tensor);
    if (!o) return -1;
    o->local = !absent, o->absent = absent, o->standing = s->standing;
    o->open = absent; /* it is not over before this rank has come */
    if (!plan_worker(&o->plan, c, s) || (absent && !leave_out(&all->leaving, s->tensor, c->rank, s->step)))
        return operation_free(all, o), -1;
    if (early) replace(all, early, o);
    return begin(all, o, now) ? 0 : -1;
}

/* NULL: it is none, or memory is out. */
static operation *operation_of_server(operations *all, const rx_message *m, uint64_t now) {
    const unsigned reduction = reduction_of(m->encoding);
    if (!reduction || (reduction <= GL_MEAN && !gl_element_is_float(type_of(m->encoding)))) return NULL;
    operation *o = operation_new(m->step, m->tensor);
    if (!o) return NULL;
    o->plan.encoding = m->encoding, o->plan.loss_class = m->loss_class;
    if (!plan_server(&o->plan, &all->job->config, m->slices, m->layer) || !begin(all, o, now))
        return operation_free(all, o), NULL;
    return o;
}

/* Finds the operation of a new message, or begins to keep what comes of one that is not submitted yet. */
static bool on_attach(void *above, rx_message *m, uint64_t now) {
    operations *all = above;
    const gl_config *c = &all->job->config;
    gl_statistics *s = &all->job->statistics;
    const bool pull = m->flags & GL_FLAG_PULL;
    if (is_server(c) ? pull || m->source >= c->workers : !pull && m->source >= c->workers) return s->bad_source++, false;
    if (test_bit(all->closed, m->tensor)) return s->slices_late++, false;
    if (!pull && was_left_out(&all->leaving, m->tensor, m->source, m->step)) return m->left_out = true;
    operation *o = find_operation(all, m->step, m->tensor);
    if (!o && is_server(c)) {
        if (!(o = operation_of_server(all, m, now))) return s->bad_header++, false;
    } else if (!o) {
        if (!(o = operation_new(m->step, m->tensor))) return s->no_memory++, false;
        operation_insert(all, o);
    }
    if (o->planned && !(o->absent && pull)) {
        if (!take_link(all, o, m)) return s->bad_range++, false;
        const uint32_t critical = tolerated_critical(c, tolerated(c, o->plan.loss_class, true));
        if (is_server(c) && m->flags & GL_FLAG_CRITICAL && critical < o->plan.pull_loss)
            o->plan.pull_loss = critical; /* of the workers, the most cautious counts */
    } else {
        m->operation = o;
        m->next_early = o->early;
        o->early = m;
    }
    expect_streams(all, m, now);
    if (!pull) count_in(all, o, now);
    return true;
}

static void on_stopped(void *above, tx_message *m, const uint8_t *received) {
    operations *all = above;
    link *l = m->link;
    operation *o = operation_of(m->plan);
    const bool reads_own = m->reads_own;
    if (!l->pull) tell_lost(all, o, GL_EVENT_LOST, first_of(l), l->slices, received);
    l->sent = NULL;
    tx_message_free(all->tx, m);
    for (unsigned k = 0; k < l->count; k++)
        if (!--l->segments[k].node->unsent) results_free(all->job, l->segments[k].node);
    o->unstopped--;
    o->open -= reads_own;
    maybe_over(all, o);
}

const upcalls operation_upcalls = {
    .stopped = on_stopped,
    .attach = on_attach,
    .arrived = on_arrived,
    .lost = on_lost,
};
