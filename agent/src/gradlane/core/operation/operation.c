/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations under way: nodes (see internal.h) take in what arrives, reduce it in rank order as soon as nothing is awaited
 * any more, and pass the result on while other slices still come. A contribution is kept only if it has to wait for
 * others; the last one is reduced straight from its datagram. Which nodes an operation has is up to collective.c.
 */
#include "engine/internal.h"

static operation **bucket_of(gl_engine *e, uint32_t step, uint16_t tensor) {
    return &e->operations[(step * 0x9e3779b1u ^ tensor * 0x85ebca6bu) / (UINT32_MAX / OPERATIONS + 1)];
}

operation *find_operation(gl_engine *e, uint32_t step, uint16_t tensor) {
    operation *o = *bucket_of(e, step, tensor);
    while (o && (o->step != step || o->tensor != tensor)) o = o->next;
    return o;
}

operation *operation_new(uint32_t step, uint16_t tensor) {
    operation *o = calloc(1, sizeof *o);
    if (o) o->step = step, o->tensor = tensor;
    return o;
}

void operation_insert(gl_engine *e, operation *o) {
    operation **bucket = bucket_of(e, o->step, o->tensor);
    o->next = *bucket;
    *bucket = o;
}

void operation_replace(gl_engine *e, operation *early, operation *o) {
    o->early = early->early;
    early->early = NULL;
    for (rx_message *m = o->early; m; m = m->next_early) m->operation = o;
    operation_free(e, early);
}

static void drop(gl_engine *e, slot **at) {
    if (!*at) return;
    slot_free(e, *at);
    *at = NULL;
}

static void drop_kept(gl_engine *e, rx_message *m, uint32_t slice) {
    if (!m->kept || !m->kept[slice]) return;
    e->kept -= e->config.slice_bytes;
    drop(e, &m->kept[slice]);
}

void message_detach(gl_engine *e, rx_message *m) {
    for (uint32_t i = 0; m->kept && i < m->slices; i++) drop_kept(e, m, i);
    free(m->kept);
    m->kept = NULL, m->link = NULL, m->operation = NULL;
}

static void links_free(gl_engine *e, link *l) {
    for (link *next; l; l = next) {
        next = l->next;
        if (l->received) message_detach(e, l->received);
        tx_free(e, l->sent);
        free(l->segments), free(l);
    }
}

static void results_free(gl_engine *e, node *n) {
    for (uint32_t i = 0; n->results && i < n->slices; i++) drop(e, &n->results[i]);
}

void operation_free(gl_engine *e, operation *o) {
    operation **at = bucket_of(e, o->step, o->tensor);
    while (*at && *at != o) at = &(*at)->next;
    if (*at) *at = o->next;
    for (rx_message *m = o->early, *next; m; m = next) next = m->next_early, message_detach(e, m);
    links_free(e, o->outgoing), links_free(e, o->incoming);
    for (unsigned i = 0; i < o->node_count; i++) {
        node *n = o->nodes[i];
        results_free(e, n);
        free(n->from), free(n->to), free(n->awaited), free(n->results), free(n->empty), free(n);
    }
    free(o->nodes), free(o->layers), free(o->magnitudes), free(o);
}

static gl_event *add_event(gl_engine *e, uint32_t kind, const operation *o, uint32_t slices) {
    gl_event *event = calloc(1, sizeof *event + (slices + 7) / 8);
    if (!event) abort(); /* a completion that is never told would hang the training */
    event->kind = kind, event->step = o->step, event->tensor = o->tensor, event->slices = slices;
    *e->events_tail = event;
    e->events_tail = &event->next;
    return event;
}

gl_event *gl_next_event(gl_engine *e) {
    gl_event *event = e->events;
    if (event && !(e->events = event->next)) e->events_tail = &e->events;
    return event;
}

void gl_event_free(gl_event *event) { free(event); }

/* An operation without anything left to do is told, and gone once nobody may ask for a repair of it. */
static void maybe_over(gl_engine *e, operation *o) {
    if (o->open) return;
    if (o->local && !o->told) add_event(e, GL_EVENT_COMPLETED, o, 0);
    o->told = true;
    if (!o->unstopped) operation_free(e, o);
}

static uint32_t length_of(const gl_engine *e, const node *n, uint32_t i) {
    return i == n->slices - 1 ? n->last_length : e->config.slice_bytes;
}

/* What was contributed to a slice, in rank order. `fresh`: the message whose `payload` has come last and is not kept. */
static unsigned contributions(const gl_engine *e, const node *n, uint32_t i, const rx_message *fresh,
                              const uint8_t *payload, const uint8_t **sources) {
    const uint8_t *own = n->own ? n->own + (uint64_t)i * e->config.slice_bytes : NULL;
    unsigned count = 0;
    for (unsigned k = 0; k < n->from_count; k++) {
        const link *l = n->from[k].link;
        const rx_message *m = l->received;
        if (own && l->rank > e->config.rank) sources[count++] = own, own = NULL;
        if (m == fresh) {
            if (payload) sources[count++] = payload;
        } else if (m->kept && m->kept[n->from[k].start + i])
            sources[count++] = m->kept[n->from[k].start + i]->bytes;
    }
    if (own) sources[count++] = own;
    return count;
}

/* Nothing more is awaited for a slice: it is reduced and passed on. `lost`: it came from one rank alone, and did not arrive. */
static void finish(gl_engine *e, node *n, uint32_t i, const rx_message *fresh, const uint8_t *payload, bool lost) {
    operation *o = n->operation;
    const uint8_t *sources[GL_MAX_RANKS];
    const unsigned count = contributions(e, n, i, fresh, payload, sources);
    const uint32_t length = length_of(e, n, i);
    const uint64_t offset = (uint64_t)i * e->config.slice_bytes;
    uint8_t *out = n->out ? n->out + offset : NULL;
    if (count) {
        uint8_t *result = n->to_count ? (n->results[i] = slot_new(e))->bytes : out;
        reduce_slice(result, sources, count, reduction_of(o->encoding), n->divisor ? n->divisor : count, length,
                     type_of(o->encoding));
        if (n->to_count && out) memcpy(out, result, length);
    } else {
        if (n->to_count) set_bit(n->empty, i);
        if (out && lost && n->instead)
            memmove(out, n->instead + offset, length);
        else if (out)
            memset(out, 0, length);
    }
    for (unsigned k = 0; k < n->from_count; k++) drop_kept(e, n->from[k].link->received, n->from[k].start + i);
    for (unsigned k = 0; k < n->to_count; k++)
        if (n->to[k].link->sent) tx_ready(e, n->to[k].link->sent, n->to[k].start + i);
    while (n->awaited && n->floor < n->slices && !n->awaited[n->floor]) n->floor++;
    if (++n->done < n->slices) return;
    o->open--;
    maybe_over(e, o);
}

bool has_room(const gl_engine *e, const rx_message *m, uint32_t slice, uint64_t ahead) {
    if (has_memory(e, ahead + 1)) return true;
    if (!m->link) return false;
    const segment *s = find_segment(m->link, slice);
    const uint32_t i = slice - s->start;
    return !s->node->awaited || s->node->awaited[i] == 1 || i < s->node->floor + GUARANTEED;
}

uint32_t expected_length(const gl_engine *e, const rx_message *m, uint32_t slice) {
    if (!m->link) return 0;
    const segment *s = find_segment(m->link, slice);
    return length_of(e, s->node, slice - s->start);
}

static void keep(gl_engine *e, rx_message *m, uint32_t slice, const uint8_t *payload, uint32_t length) {
    if (!m->kept && !(m->kept = calloc(m->slices, sizeof *m->kept))) abort();
    slot *s = m->kept[slice] = slot_new(e);
    put16(s->header + GL_AT_LENGTH, (uint16_t)length);
    memcpy(s->bytes, payload, length);
    e->kept += e->config.slice_bytes;
}

/* Counts down what a slice still waits for; returns whether that was the last. */
static bool last_awaited(node *n, uint32_t i) { return !n->awaited || !--n->awaited[i]; }

void slice_arrived(gl_engine *e, rx_message *m, uint32_t slice, const uint8_t *payload, uint32_t length) {
    if (!m->link) {
        if (length) keep(e, m, slice, payload, length);
        return;
    }
    const segment *s = find_segment(m->link, slice);
    node *n = s->node;
    const uint32_t i = slice - s->start;
    if (i == n->slices - 1 && !n->last_length) n->last_length = length;
    if (last_awaited(n, i))
        finish(e, n, i, m, length ? payload : NULL, false);
    else
        keep(e, m, slice, payload, length);
}

void slice_lost(gl_engine *e, rx_message *m, uint32_t slice) {
    const segment *s = find_segment(m->link, slice);
    const uint32_t i = slice - s->start;
    if (last_awaited(s->node, i)) finish(e, s->node, i, m, NULL, true);
}

/* Told once of each rank: the sender goes on, and there is nothing new in what comes. */
static void mismatch(gl_engine *e, operation *o, const rx_message *m) {
    if (test_bit(o->mismatched, m->source)) return;
    set_bit(o->mismatched, m->source);
    gl_event *event = add_event(e, GL_EVENT_MISMATCH, o, 0);
    event->source = m->source, event->slices = m->slices;
}

bool operation_attach(gl_engine *e, operation *o, rx_message *m) {
    link *l = o->incoming;
    while (l && (l->rank != m->source || l->pull != !!(m->flags & GL_FLAG_PULL))) l = l->next;
    if (!l || l->received || l->slices != m->slices || o->encoding != m->encoding) {
        mismatch(e, o, m);
        return false;
    }
    l->received = m;
    m->link = l, m->operation = o;
    return true;
}

/* What has come of a message before its operation was submitted. */
static void take_early(gl_engine *e, operation *o, rx_message *m) {
    if (!operation_attach(e, o, m)) {
        message_detach(e, m);
        return;
    }
    for (uint32_t slice = 0; slice < m->slices; slice++) {
        const segment *s = find_segment(m->link, slice);
        node *n = s->node;
        const uint32_t i = slice - s->start;
        const slot *kept = m->kept ? m->kept[slice] : NULL;
        const bool arrived = test_bit(m->arrived, slice);
        if (kept && get16(kept->header + GL_AT_LENGTH) != length_of(e, n, i)) {
            mismatch(e, o, m);
            return;
        }
        if ((arrived || m->complete) && last_awaited(n, i)) finish(e, n, i, NULL, NULL, !arrived);
    }
}

static bool nodes_begin(operation *o) {
    for (unsigned k = 0; k < o->node_count; k++) {
        node *n = o->nodes[k];
        n->unsent = n->to_count;
        if (!n->from_count) {
            if (n->out && n->out != n->own) memmove(n->out, n->own, n->bytes);
            continue;
        }
        o->open++;
        if (n->from_count > 1) {
            if (!(n->awaited = malloc(n->slices * sizeof *n->awaited))) return false;
            for (uint32_t i = 0; i < n->slices; i++) n->awaited[i] = (uint16_t)n->from_count;
        }
        if (!n->to_count) continue;
        n->results = calloc(n->slices, sizeof *n->results);
        n->empty = calloc(words(n->slices), sizeof *n->empty);
        if (!n->results || !n->empty) return false;
    }
    return true;
}

bool operation_begin(gl_engine *e, operation *o, uint64_t now) {
    operation_insert(e, o);
    o->planned = true, o->since = now;
    o->open = 1; /* one more until all of it is under way */
    if (!nodes_begin(o)) return false;
    for (link *l = o->outgoing; l; l = l->next) {
        if (!(l->sent = tx_new(e, o, l))) return false;
        o->unstopped++;
        o->open += l->sent->reads_own;
    }
    for (link *l = o->outgoing; l; l = l->next) tx_begin(e, l->sent);
    rx_message *m = o->early;
    o->early = NULL;
    for (rx_message *next; m; m = next) {
        next = m->next_early;
        take_early(e, o, m);
        if (!m->link || m->complete) continue;
        expect_streams(e, m, now);
        resume(e, m, now);
    }
    o->open--;
    maybe_over(e, o);
    return true;
}

/* What did not count of a worker's contribution. */
static void tell_lost(gl_engine *e, const operation *o, const link *l, const uint8_t *received) {
    uint32_t arrived = 0;
    for (uint32_t i = 0; i < l->slices; i++) arrived += received[i >> 3] >> (i & 7) & 1;
    if (arrived == l->slices) return;
    gl_event *event = add_event(e, GL_EVENT_LOST, o, l->slices);
    event->first_slice = l->segments[0].node->first;
    event->lost_slices = l->slices - arrived;
    for (uint32_t i = 0; i < l->slices; i++)
        if (!(received[i >> 3] >> (i & 7) & 1)) event->lost[i >> 3] |= (uint8_t)(1 << (i & 7));
}

void message_stopped(gl_engine *e, tx_message *m, const uint8_t *received) {
    operation *o = m->operation;
    link *l = m->link;
    const bool reads_own = m->reads_own;
    if (!l->pull) tell_lost(e, o, l, received);
    l->sent = NULL;
    tx_free(e, m);
    for (unsigned k = 0; k < l->count; k++)
        if (!--l->segments[k].node->unsent) results_free(e, l->segments[k].node);
    o->unstopped--;
    o->open -= reads_own;
    maybe_over(e, o);
}

int gl_oldest(const gl_engine *e, uint64_t now, gl_waiting *waiting) {
    const operation *oldest = NULL;
    for (unsigned i = 0; i < OPERATIONS; i++)
        for (const operation *o = e->operations[i]; o; o = o->next)
            if (o->local && !o->told && (!oldest || o->since < oldest->since)) oldest = o;
    if (!oldest) return 0;
    *waiting = (gl_waiting){.age = now - oldest->since, .step = oldest->step, .tensor = oldest->tensor};
    /* A result may wait for somebody else, and so may the rest of a message: who has sent nothing of his own comes first. */
    for (int kind = 0, found = 0; kind < 3 && !found; kind++)
        for (const link *l = oldest->incoming; l; l = l->next) {
            if ((l->received && l->received->complete) || (l->pull ? 2 : l->received ? 1 : 0) != kind) continue;
            waiting->missing[l->rank >> 6] |= 1ull << (l->rank & 63);
            found = 1;
            waiting->direct = kind == 0;
        }
    return 1;
}
