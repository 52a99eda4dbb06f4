/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The operations that there are, and what they tell.
 */
#include "operation/table.h"

#include <stdlib.h>

#include "base/bits.h"
#include "operation/streams.h"
#include "operation/waiting.h"

static operation **bucket_of(operations *all, uint32_t step, uint16_t tensor) {
    return &all->buckets[(step * 0x9e3779b1u ^ tensor * 0x85ebca6bu) / (UINT32_MAX / OPERATIONS + 1)];
}

operation *find_operation(const operations *all, uint32_t step, uint16_t tensor) {
    operation *o = *bucket_of((operations *)all, step, tensor);
    while (o && (o->plan.step != step || o->plan.tensor != tensor)) o = o->next;
    return o;
}

operation *operation_new(uint32_t step, uint16_t tensor) {
    operation *o = calloc(1, sizeof *o);
    if (o) o->plan.step = step, o->plan.tensor = tensor, o->deadline.of = OF_OPERATION;
    return o;
}

void operation_insert(operations *all, operation *o) {
    operation **bucket = bucket_of(all, o->plan.step, o->plan.tensor);
    o->next = *bucket;
    *bucket = o;
}

void results_free(job *j, node *n) {
    for (uint32_t i = 0; n->results && i < n->slices; i++) {
        if (n->results[i]) slot_free(&j->pool, n->results[i]);
        n->results[i] = NULL;
    }
}

static void leave_links(operations *all, const link *l) {
    for (; l; l = l->next) {
        if (l->received) rx_detach(all->job, l->received);
        tx_message_free(all->tx, l->sent);
    }
}

void operation_free(operations *all, operation *o) {
    operation **at = bucket_of(all, o->plan.step, o->plan.tensor);
    while (*at && *at != o) at = &(*at)->next;
    if (*at) *at = o->next;
    timer_stop(all->job, &o->deadline);
    for (rx_message *m = o->early, *next; m; m = next) next = m->next_early, rx_detach(all->job, m);
    leave_links(all, o->plan.outgoing), leave_links(all, o->plan.incoming);
    for (unsigned i = 0; i < o->plan.node_count; i++)
        results_free(all->job, o->plan.nodes[i]), waiting_drop_all(all->job, o->plan.nodes[i]);
    plan_free(&o->plan);
    free(o->mismatched), free(o);
}

/* What has come of it is forgotten, so that it is refused should it come again. */
static void abandon(operations *all, operation *o) {
    for (rx_message *m = o->early, *next; m; m = next) next = m->next_early, rx_forget(all->rx, m);
    o->early = NULL;
    for (link *l = o->plan.incoming; l; l = l->next) {
        if (l->received) rx_forget(all->rx, l->received);
        l->received = NULL;
    }
    operation_free(all, o);
}

void operations_close(operations *all, uint16_t tensor) {
    set_bit(all->closed, tensor);
    for (unsigned i = 0; i < OPERATIONS; i++)
        for (operation *o = all->buckets[i], *next; o; o = next) {
            next = o->next;
            if (o->plan.tensor == tensor) abandon(all, o);
        }
    activate(all->tx);
}

static bool has_link(const link *l, unsigned rank) {
    while (l && l->rank != rank) l = l->next;
    return l;
}

/* What came early of a rank. Returns whether something of others is left. */
static bool drop_early(operations *all, operation *o, unsigned rank) {
    for (rx_message **at = &o->early; *at;) {
        rx_message *m = *at;
        if (m->source == rank)
            *at = m->next_early, rx_forget(all->rx, m);
        else
            at = &m->next_early;
    }
    return o->early;
}

void operations_drop(operations *all, unsigned rank) {
    for (unsigned i = 0; i < OPERATIONS; i++)
        for (operation *o = all->buckets[i], *next; o; o = next) {
            next = o->next;
            const bool lives = o->planned ? !has_link(o->plan.incoming, rank) && !has_link(o->plan.outgoing, rank)
                                          : drop_early(all, o, rank);
            if (!lives) abandon(all, o);
        }
    activate(all->tx);
}

bool operations_new(operations *all, job *j, tx *x, rx *r, const gl_config *config) {
    all->job = j, all->tx = x, all->rx = r;
    all->events_tail = &all->events;
    all->failed = calloc(1, sizeof *all->failed);
    if (all->failed) all->failed->kind = GL_EVENT_FAILED;
    all->sources = calloc(ranks_of(config), sizeof *all->sources);
    return leaving_new(&all->leaving, config) && arrivals_new(&all->arrivals, config) && all->sources && all->failed;
}

void operations_free(operations *all) {
    for (unsigned i = 0; i < OPERATIONS; i++)
        while (all->buckets[i]) operation_free(all, all->buckets[i]);
    for (gl_event *event; (event = next_event(all));) gl_event_free(event);
    gl_event_free(all->failed);
    leaving_free(&all->leaving);
    arrivals_free(&all->arrivals);
    streams_free(all);
    free(all->sources);
}

gl_event *tell(operations *all, uint32_t kind, uint32_t step, uint16_t tensor, uint32_t slices) {
    gl_event *event = calloc(1, sizeof *event + (slices + 7) / 8);
    if (!event) {
        all->job->failed = true;
        return NULL;
    }
    event->kind = kind, event->step = step, event->tensor = tensor, event->slices = slices;
    *all->events_tail = event;
    all->events_tail = &event->next;
    return event;
}

void tell_lost(operations *all, const operation *o, uint32_t kind, uint32_t first, uint32_t slices, const uint8_t *received) {
    uint32_t arrived = 0;
    for (uint32_t i = 0; received && i < slices; i++) arrived += received[i >> 3] >> (i & 7) & 1;
    if (arrived == slices || !o->local) return;
    gl_event *event = add_event(all, kind, o, slices);
    if (!event) return;
    event->first_slice = first;
    event->lost_slices = slices - arrived;
    for (uint32_t i = 0; i < slices; i++)
        if (!received || !(received[i >> 3] >> (i & 7) & 1)) event->lost[i >> 3] |= (uint8_t)(1 << (i & 7));
}

bool has_event(const operations *all) { return all->events || (all->job->failed && all->failed); }

gl_event *next_event(operations *all) {
    gl_event *event = all->job->failed ? all->failed : NULL;
    if (event) return all->failed = NULL, event; /* first of all: nothing else counts any more */
    event = all->events;
    if (event && !(all->events = event->next)) all->events_tail = &all->events;
    return event;
}

void gl_event_free(gl_event *event) { free(event); }

int operation_oldest(const operations *all, uint64_t now, gl_waiting *waiting) {
    const operation *oldest = NULL;
    for (unsigned i = 0; i < OPERATIONS; i++)
        for (const operation *o = all->buckets[i]; o; o = o->next)
            if (o->local && !o->told && !o->standing && (!oldest || o->since < oldest->since)) oldest = o;
    if (!oldest) return 0;
    *waiting = (gl_waiting){.age = now - oldest->since, .step = oldest->plan.step, .tensor = oldest->plan.tensor};
    /* A result may wait for somebody else, and so may the rest of a message: who has sent nothing of his own comes first. */
    for (int kind = 0, found = 0; kind < 3 && !found; kind++)
        for (const link *l = oldest->plan.incoming; l; l = l->next) {
            if (l->left_at || (l->received && l->received->complete) || (l->pull ? 2 : l->received ? 1 : 0) != kind) continue;
            waiting->missing[l->rank >> 6] |= 1ull << (l->rank & 63);
            found = 1;
            waiting->direct = kind == 0;
        }
    return 1;
}
