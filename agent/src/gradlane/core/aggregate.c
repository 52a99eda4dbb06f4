/* SPDX-License-Identifier: Apache-2.0
 *
 * Direct aggregation. A tensor is cut into slices, the slices into one shard per aggregator. Every worker pushes each
 * shard to its aggregator; a slice that all workers contributed to, or lost within their budgets, is reduced at once
 * and pulled while others are still being pushed.
 */
#include "internal.h"

uint32_t gl_shard_start(uint32_t slices, uint32_t index, uint32_t aggregators) {
    return (uint32_t)((uint64_t)slices * index / aggregators);
}

operation *find_operation(gl_engine *e, uint32_t step, uint16_t tensor) {
    operation *o = e->operations;
    while (o && o->key != key_of(step, tensor)) o = o->next;
    return o;
}

aggregation *find_aggregation(gl_engine *e, uint32_t step, uint16_t tensor) {
    aggregation *a = e->aggregations;
    while (a && a->key != key_of(step, tensor)) a = a->next;
    return a;
}

static gl_event *add_event(gl_engine *e, uint32_t kind, uint32_t step, uint16_t tensor, uint32_t slices) {
    gl_event *event = calloc(1, sizeof *event + (slices + 7) / 8);
    if (!event) abort(); /* a completion that is never told would hang the training */
    event->kind = kind, event->step = step, event->tensor = tensor, event->slices = slices;
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

void mismatch(gl_engine *e, uint32_t step, uint16_t tensor, unsigned source, uint32_t slices) {
    gl_event *event = add_event(e, GL_EVENT_MISMATCH, step, tensor, 0);
    event->source = (uint16_t)source;
    event->slices = slices;
}

void operation_free(gl_engine *e, operation *o) {
    operation **at = &e->operations;
    while (*at && *at != o) at = &(*at)->next;
    if (*at) *at = o->next;
    free(o->layers), free(o->magnitudes), free(o);
}

static void maybe_complete(gl_engine *e, operation *o) {
    if (o->shards_open || o->pushes_open) return;
    add_event(e, GL_EVENT_COMPLETED, o->step, o->tensor, 0);
    operation_free(e, o);
}

void shard_done(gl_engine *e, operation *o) {
    o->shards_open--;
    maybe_complete(e, o);
}

void push_released(gl_engine *e, tx_message *m, const uint8_t *received) {
    uint32_t arrived = 0;
    for (uint32_t i = 0; i < m->slices; i++) arrived += received[i >> 3] >> (i & 7) & 1;
    if (arrived < m->slices) {
        gl_event *event = add_event(e, GL_EVENT_LOST, m->step, m->tensor, m->slices);
        event->first_slice = m->first;
        event->lost_slices = m->slices - arrived;
        for (uint32_t i = 0; i < m->slices; i++)
            if (!(received[i >> 3] >> (i & 7) & 1)) event->lost[i >> 3] |= (uint8_t)(1 << (i & 7));
    }
    m->operation->pushes_open--;
    maybe_complete(e, m->operation);
}

void aggregation_free(gl_engine *e, aggregation *a) {
    aggregation **at = &e->aggregations;
    while (*at && *at != a) at = &(*at)->next;
    if (*at) *at = a->next;
    e->memory -= a->memory;
    free(a->sources), free(a->resolved), free(a->layers), free(a->empty), free(a->result), free(a->pulls), free(a);
}

void pull_released(gl_engine *e, tx_message *m) {
    aggregation *a = m->aggregation;
    for (unsigned i = 0; i < a->pull_count; i++)
        if (a->pulls[i] == m) a->pulls[i] = NULL;
    if (--a->pulls_open == 0 && a->reduced == a->slices) aggregation_free(e, a);
}

static tx_message *pull_new(gl_engine *e, aggregation *a, path *p, unsigned targets, uint8_t flags) {
    tx_message *m = tx_new(e, p, targets, a->slices);
    if (!m) return NULL;
    m->queue = calloc(a->slices, sizeof *m->queue);
    if (!m->queue) return tx_free(m), NULL;
    m->flags = flags, m->step = a->step, m->tensor = a->tensor, m->first = a->first;
    m->budget = budget_of(tolerated(e, a->loss_class, true), a->slices);
    m->encoding = a->encoding, m->loss_class = a->loss_class;
    m->payload = a->result, m->empty = a->empty, m->layers = a->layers, m->aggregation = a;
    return m;
}

/* The shard's pull messages: one to the multicast group, or one to each worker. */
static bool pulls_new(gl_engine *e, aggregation *a) {
    const unsigned workers = e->config.workers;
    const bool multicast = e->config.multicast != 0;
    a->pulls = calloc(workers, sizeof *a->pulls);
    if (!a->pulls) return false;
    tx_message *shared = NULL;
    for (unsigned rank = 0; rank < workers; rank++) {
        if (rank == e->config.rank) continue;
        if (!multicast || !shared) {
            path *p = &e->paths[multicast ? e->ranks : rank];
            unsigned targets = multicast ? workers - (e->config.rank < workers) : 1;
            shared = pull_new(e, a, p, targets, GL_FLAG_PULL | (multicast ? GL_FLAG_MULTICAST : 0));
            if (!shared) return false;
            shared->targets = 0;
            a->pulls[a->pull_count++] = shared;
        }
        shared->target[shared->targets++].rank = (uint16_t)rank;
    }
    a->pulls_open = a->pull_count;
    return true;
}

aggregation *aggregation_new(gl_engine *e, uint32_t step, uint16_t tensor, uint32_t slices, uint8_t encoding,
                             uint32_t loss_class) {
    const uint64_t memory = (uint64_t)slices * e->config.slice_bytes;
    if (e->memory + memory > e->config.memory) return NULL;
    aggregation *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->key = key_of(step, tensor), a->step = step, a->tensor = tensor, a->slices = slices, a->memory = memory;
    a->encoding = encoding, a->loss_class = loss_class;
    e->memory += memory;
    a->next = e->aggregations;
    e->aggregations = a;
    a->sources = calloc(e->config.workers, sizeof *a->sources);
    a->resolved = calloc(slices, sizeof *a->resolved);
    a->layers = calloc(slices, sizeof *a->layers);
    a->empty = calloc(words(slices), sizeof *a->empty);
    a->result = malloc(memory);
    if (!a->sources || !a->resolved || !a->layers || !a->empty || !a->result || !pulls_new(e, a)) {
        for (unsigned i = 0; i < a->pull_count; i++) tx_free(a->pulls[i]);
        return aggregation_free(e, a), NULL;
    }
    return a;
}

static void reduce(gl_engine *e, aggregation *a, uint32_t slice, uint64_t now) {
    const uint32_t stride = e->config.slice_bytes;
    const uint8_t *sources[GL_MAX_RANKS];
    unsigned count = 0;
    for (unsigned rank = 0; rank < e->config.workers; rank++) {
        rx_message *m = a->sources[rank];
        if (a->local && rank == e->config.rank)
            sources[count++] = a->local->in + (uint64_t)(a->first + slice) * stride;
        else if (m && test_bit(m->arrived, slice))
            sources[count++] = m->buffer + (uint64_t)slice * stride;
    }
    const uint32_t bytes = slice == a->slices - 1 ? a->last_length : stride;
    uint8_t *result = a->result + (uint64_t)slice * stride;
    if (count)
        reduce_slice(result, sources, count,
                     reduction_of(a->encoding) == GL_MEAN_OF_ARRIVED ? count : e->config.workers, bytes,
                     type_of(a->encoding));
    else
        set_bit(a->empty, slice);
    if (a->local) memcpy(a->local->out + (uint64_t)(a->first + slice) * stride, result, bytes);
    a->reduced++;
    for (unsigned i = 0; i < a->pull_count; i++) {
        if (!a->pulls[i]) continue; /* stopped before its time */
        a->pulls[i]->last_length = a->last_length;
        if (a->reduced == 1) tx_start(e, a->pulls[i], now);
        tx_ready(e, a->pulls[i], slice);
    }
    if (a->reduced < a->slices) return;
    for (unsigned rank = 0; rank < e->config.workers; rank++)
        if (a->sources[rank]) rx_release_buffer(e, a->sources[rank]), a->sources[rank]->aggregation = NULL;
    operation *local = a->local;
    if (!a->pulls_open) aggregation_free(e, a);
    if (local) shard_done(e, local);
}

void resolve(gl_engine *e, aggregation *a, uint32_t slice, uint64_t now) {
    if (++a->resolved[slice] == e->config.workers) reduce(e, a, slice, now);
}

/* A worker's own contribution to the shard that it aggregates itself. */
static int contribute(gl_engine *e, operation *o, uint32_t first, uint32_t slices, uint64_t now) {
    if (!slices) return shard_done(e, o), 0;
    aggregation *a = find_aggregation(e, o->step, o->tensor);
    const uint32_t last_length = first + slices == o->slices ? o->last_length : e->config.slice_bytes;
    if (a && (a->slices != slices || a->encoding != o->encoding || (a->last_length && a->last_length != last_length))) {
        for (unsigned rank = 0; rank < e->config.workers; rank++)
            if (a->sources[rank]) mismatch(e, o->step, o->tensor, rank, a->slices);
        return 0;
    }
    if (!a && !(a = aggregation_new(e, o->step, o->tensor, slices, o->encoding, o->loss_class))) return -1;
    a->local = o, a->first = first;
    a->last_length = last_length;
    memcpy(a->layers, o->layers + first, slices * sizeof *a->layers);
    for (unsigned i = 0; i < a->pull_count; i++) a->pulls[i]->first = first;
    for (uint32_t i = 0; i < slices; i++) resolve(e, a, i, now);
    return 0;
}

static int push(gl_engine *e, operation *o, unsigned index, uint32_t first, uint32_t slices, uint64_t now) {
    const unsigned rank = aggregator_rank(e, index);
    if (!slices) return shard_done(e, o), 0;
    tx_message *m = tx_new(e, &e->paths[rank], 1, slices);
    if (!m) return -1;
    m->target[0].rank = (uint16_t)rank;
    m->step = o->step, m->tensor = o->tensor, m->first = first, m->operation = o;
    m->budget = budget_of(o->push_loss, slices);
    m->encoding = o->encoding, m->loss_class = o->loss_class;
    m->payload = o->in + (uint64_t)first * e->config.slice_bytes;
    m->last_length = first + slices == o->slices ? o->last_length : e->config.slice_bytes;
    m->layers = o->layers + first, m->magnitudes = o->magnitudes + first;
    m->ready = slices;
    o->pushes_open++;
    tx_start(e, m, now);
    return 0;
}

int gl_submit(gl_engine *e, const gl_submission *s, uint64_t now) {
    const unsigned item = gl_element_bytes(s->element_type);
    const uint64_t bytes = s->elements * item;
    const uint64_t slices = (bytes + e->config.slice_bytes - 1) / e->config.slice_bytes;
    if (!bytes || slices > (uint64_t)GL_MAX_SLICES * e->aggregators || find_operation(e, s->step, s->tensor)) return -1;
    if (s->collective != GL_ALL_REDUCE || s->algorithm != GL_DIRECT || s->group || s->reduction > GL_MEAN) return -1;
    operation *o = calloc(1, sizeof *o);
    if (!o) return -1;
    o->key = key_of(s->step, s->tensor), o->step = s->step, o->tensor = s->tensor, o->slices = (uint32_t)slices;
    o->encoding = (uint8_t)(s->element_type | s->reduction << 4);
    o->push_loss = s->push_loss, o->pull_loss = s->pull_loss;
    o->last_length = (uint32_t)(bytes - (slices - 1) * e->config.slice_bytes);
    o->in = s->in, o->out = s->out;
    o->layers = calloc(slices, sizeof *o->layers);
    o->magnitudes = malloc(slices);
    o->next = e->operations;
    e->operations = o;
    if (!o->layers || !o->magnitudes) return operation_free(e, o), -1;
    if (s->layers) memcpy(o->layers, s->layers, slices * sizeof *o->layers);
    memset(o->magnitudes, 255, slices);
    if (s->magnitudes) memcpy(o->magnitudes, s->magnitudes, slices);
    o->loss_class = class_of(e, o->layers[0]);
    for (uint32_t i = 0; i < slices; i++)
        if (class_of(e, o->layers[i]) != o->loss_class) return operation_free(e, o), -1;
    if (o->push_loss > tolerated(e, o->loss_class, false) || o->pull_loss > tolerated(e, o->loss_class, true))
        return operation_free(e, o), -1;
    o->shards_open = e->aggregators + 1; /* one more until all are under way */
    for (unsigned k = 0; k < e->aggregators; k++) {
        /* Begin with the next rank's shard, so that not all workers fall on the same aggregator first. */
        const unsigned index = (k + e->config.rank + 1) % e->aggregators;
        const uint32_t first = gl_shard_start(o->slices, index, e->aggregators);
        const uint32_t count = gl_shard_start(o->slices, index + 1, e->aggregators) - first;
        const int failed = index == e->aggregator ? contribute(e, o, first, count, now)
                                                  : push(e, o, index, first, count, now);
        if (failed) return -1; /* out of memory: the session ends */
    }
    shard_done(e, o);
    return 0;
}
