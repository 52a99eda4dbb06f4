/* SPDX-License-Identifier: Apache-2.0
 *
 * All-reduces of registered tensors. Once all local processes have brought their contributions, each partition is
 * prepared (summed over the processes, what is owed added, its slices' worth found) and submitted, the front layers
 * first. Preparing is done in parts, so that the network is served in between.
 */
#include "exchange/tensor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "arithmetic/magnitude.h"
#include "arithmetic/types.h"
#include "wire.h"

enum { WORK_BYTES = 4 << 20 }; /* prepared at a time: about a millisecond */

void tensor_free(tensor *t) {
    if (!t) return;
    for (unsigned i = 0; i < t->count; i++) {
        free(t->partitions[i].layers);
        gl_residual_free(&t->partitions[i].residual);
    }
    if (t->own_memory) free(t->gathered);
    free(t);
}

static bool lossy(const gl_tensor *like, const gl_partition *p) {
    return (p->push_loss || p->pull_loss) && like->element_type != GL_TYPE_FLOAT64;
}

static bool partition_new(const gl_exchange *x, const tensor *t, partition *p, const gl_tensor *like,
                          const gl_partition *is, const uint16_t *layers) {
    const uint64_t bytes = is->elements * gl_element_bytes(t->element_type);
    p->is = *is;
    p->lossy = lossy(like, is);
    p->slices = (uint32_t)((bytes + x->config.slice_bytes - 1) / x->config.slice_bytes);
    p->layers = malloc(p->slices * sizeof *p->layers);
    if (!p->layers) return false;
    memcpy(p->layers, layers, p->slices * sizeof *p->layers);
    return !p->lossy || !t->feedback || !gl_residual_new(&p->residual, bytes, x->config.slice_bytes);
}

/* Partitions must cover the tensor in order. */
static bool sound(const gl_exchange *x, const gl_tensor *like) {
    uint64_t next = 0;
    for (unsigned i = 0; i < like->partition_count; i++) {
        if (like->partitions[i].first != next || !like->partitions[i].elements) return false;
        next += like->partitions[i].elements;
    }
    return next == like->elements && like->id < GL_MAX_TENSORS && !x->tensors[like->id] && like->partition_count &&
           like->partition_count <= GL_MAX_PARTITIONS && gl_element_bytes(like->element_type);
}

int gl_exchange_tensor(gl_exchange *x, const gl_tensor *like) {
    if (!sound(x, like)) return -1;
    tensor *t = calloc(1, sizeof *t);
    if (!t) return -1;
    t->id = like->id, t->element_type = like->element_type, t->reduction = like->reduction;
    t->feedback = like->feedback, t->elements = like->elements, t->result = like->result;
    memcpy(t->contributions, like->contributions, x->config.processes * sizeof *t->contributions);
    const uint16_t *layers = like->layers;
    bool exact = true;
    for (; t->count < like->partition_count; t->count++) {
        partition *p = &t->partitions[t->count];
        if (!partition_new(x, t, p, like, &like->partitions[t->count], layers)) return t->count++, tensor_free(t), -1;
        layers += p->slices;
        exact = exact && !p->lossy;
    }
    /* What may be lost stays as it was contributed until it is known what was: the result is other memory. */
    if (x->config.processes == 1)
        t->gathered = t->contributions[0];
    else if (exact)
        t->gathered = t->result;
    else {
        t->gathered = malloc(t->elements * gl_element_bytes(t->element_type));
        t->own_memory = true;
    }
    if (!t->gathered || (!exact && t->gathered == t->result)) return tensor_free(t), -1;
    x->tensors[t->id] = t;
    return 0;
}

int gl_exchange_release_tensor(gl_exchange *x, unsigned id) {
    if (id >= GL_MAX_TENSORS || !x->tensors[id] || x->tensors[id]->present) return -1;
    tensor_free(x->tensors[id]);
    x->tensors[id] = NULL;
    return 0;
}

int gl_exchange_residual(gl_exchange *x, unsigned id, uint8_t *values, int import) {
    tensor *t = id < GL_MAX_TENSORS ? x->tensors[id] : NULL;
    if (!t || t->open) return -1; /* what only some processes have submitted has not begun */
    const uint32_t item = gl_element_bytes(t->element_type);
    for (unsigned i = 0; i < t->count; i++) {
        partition *p = &t->partitions[i];
        uint8_t *at = values + p->is.first * item;
        if (!p->residual.slices) {
            if (!import) memset(at, 0, p->is.elements * item);
        } else if (import)
            gl_residual_import(&p->residual, at);
        else
            gl_residual_export(&p->residual, at);
    }
    return 0;
}

static void finish(gl_exchange *x, tensor *t) {
    t->present = 0, t->arrived = 0, t->begun = 0;
    x->under_way--;
    x->statistics.completed++;
    x->statistics.elements += t->elements;
    for (unsigned k = 0; k < x->config.processes; k++) completed(x, k, t->slots[k]);
}

static void partition_done(gl_exchange *x, tensor *t) {
    if (--t->open == 0) finish(x, t);
}

/* The quantile of each slice within its message: a message carries what one aggregator reduces. */
static void rank_slices(const gl_exchange *x, const partition *p, const float *means, uint8_t *magnitudes) {
    const unsigned aggregators = x->config.servers ? x->config.servers : x->config.hosts;
    for (unsigned k = 0; k < aggregators; k++) {
        const uint32_t first = gl_shard_start(p->slices, k, aggregators);
        const uint32_t count = gl_shard_start(p->slices, k + 1, aggregators) - first;
        if (count) gl_quantiles(means + first, count, magnitudes + first);
    }
}

/* Returns the bytes that were worked on. `magnitudes`: of every slice; left alone where nothing may be lost. */
static uint64_t prepare(gl_exchange *x, tensor *t, partition *p, uint8_t *magnitudes, float *means) {
    const unsigned processes = x->config.processes;
    const uint32_t item = gl_element_bytes(t->element_type), per_slice = x->config.slice_bytes / item;
    const uint64_t begin = p->is.first * item;
    const uint8_t *sources[GL_MAX_PROCESSES];
    if (!p->lossy) {
        if (processes == 1) return 0;
        for (unsigned k = 0; k < processes; k++) sources[k] = t->contributions[k] + begin;
        reduce_local(t->gathered + begin, sources, processes, t->reduction, p->is.elements, t->element_type);
        x->statistics.copied_bytes += p->is.elements * item;
        return p->is.elements * item * processes;
    }
    const bool mean = t->reduction == GL_MEAN || t->reduction == GL_MEAN_OF_ARRIVED;
    double squares = 0;
    for (uint32_t slice = 0; slice < p->slices; slice++) {
        const uint64_t first = (uint64_t)slice * per_slice, left = p->is.elements - first;
        const uint64_t offset = begin + first * item;
        for (unsigned k = 0; k < processes; k++) sources[k] = t->contributions[k] + offset;
        const uint8_t *owed = p->residual.owed ? gl_residual_take(&p->residual, slice) : NULL;
        const gl_worth worth = gl_contribute(t->gathered + offset, sources, processes, mean ? processes : 1, owed,
                                             left < per_slice ? left : per_slice, t->element_type);
        means[slice] = worth.mean;
        squares += worth.squares;
    }
    rank_slices(x, p, means, magnitudes);
    gl_tolerance_observe(&x->tolerance, t->step, squares);
    if (processes > 1) x->statistics.copied_bytes += p->is.elements * item;
    return p->is.elements * item * processes;
}

/* Returns the bytes that were worked on. */
static uint64_t begin_partition(gl_exchange *x, tensor *t, unsigned index, uint64_t now) {
    partition *p = &t->partitions[index];
    uint8_t *magnitudes = p->lossy ? malloc(p->slices) : NULL;
    float *means = p->lossy ? malloc(p->slices * sizeof *means) : NULL;
    uint64_t worked = 0;
    if (p->lossy && (!magnitudes || !means)) {
        fail(x, GL_FAILURE_MEMORY, 0, t->id * GL_MAX_PARTITIONS, t->step, "memory is out");
    } else {
        worked = prepare(x, t, p, magnitudes, means);
        const uint64_t offset = p->is.first * gl_element_bytes(t->element_type);
        if (alone(x)) {
            if (t->result != t->gathered)
                memcpy(t->result + offset, t->gathered + offset, p->is.elements * gl_element_bytes(t->element_type));
            partition_done(x, t);
        } else {
            const gl_submission s = {
                .step = t->step, .tensor = (uint16_t)(t->id * GL_MAX_PARTITIONS + index),
                .collective = GL_ALL_REDUCE, .algorithm = p->is.algorithm, .element_type = t->element_type,
                .reduction = t->reduction, .elements = p->is.elements, .in = t->gathered + offset,
                .out = t->result + offset, .layers = p->layers, .magnitudes = magnitudes,
                .push_loss = p->lossy ? gl_tolerance_loss(&x->tolerance, p->is.push_loss) : 0,
                .pull_loss = p->lossy ? gl_tolerance_loss(&x->tolerance, p->is.pull_loss) : 0};
            submit(x, &s, now);
        }
    }
    free(magnitudes), free(means);
    return worked;
}

/* The front layers' work first: the next forward pass begins with them. */
static tensor **most_urgent(gl_exchange *x) {
    tensor **best = &x->work;
    for (tensor **at = &x->work; *at; at = &(*at)->next)
        if ((*at)->partitions[(*at)->begun].layers[0] < (*best)->partitions[(*best)->begun].layers[0]) best = at;
    return best;
}

void tensor_work(gl_exchange *x, uint64_t now) {
    uint64_t worked = 0;
    while (x->work && !x->failure.kind) {
        if (worked >= WORK_BYTES) {
            eventfd_write(x->again, 1);
            return;
        }
        tensor **at = most_urgent(x), *t = *at;
        if (t->begun + 1 == t->count) *at = t->next; /* before it can be completed, and begin anew */
        worked += begin_partition(x, t, t->begun++, now);
    }
}

void tensor_command(gl_exchange *x, process *p, const gl_command *c, uint64_t now) {
    tensor *t = c->target < GL_MAX_TENSORS ? x->tensors[c->target] : NULL;
    if (!t) {
        fail(x, GL_FAILURE_PROCESS, p->number, 0, 0, "it submits tensor %u, which is not registered", c->target);
        return;
    }
    const uint64_t bit = 1ull << p->number;
    if (t->present & bit) {
        fail(x, GL_FAILURE_PROCESS, p->number, t->id * GL_MAX_PARTITIONS, t->step, "submitted while it is in flight");
        return;
    }
    if (!t->present) t->since = now, x->under_way++, x->statistics.submitted++;
    t->present |= bit;
    t->slots[p->number] = c->slot;
    if (++t->arrived < x->config.processes) return;
    t->step++;
    if (t->step > x->statistics.step) x->statistics.step = t->step;
    t->begun = 0, t->open = t->count;
    t->next = x->work;
    x->work = t;
}

void tensor_event(gl_exchange *x, const gl_event *event) {
    tensor *t = x->tensors[event->tensor / GL_MAX_PARTITIONS];
    const unsigned index = event->tensor % GL_MAX_PARTITIONS;
    if (!t || index >= t->count) return; /* of nothing that was submitted here */
    partition *p = &t->partitions[index];
    const uint64_t offset = p->is.first * gl_element_bytes(t->element_type);
    if (event->kind == GL_EVENT_COMPLETED) {
        /* The mean of what arrived stood for what did not: only the difference is owed. */
        if (t->reduction == GL_MEAN_OF_ARRIVED) gl_residual_subtract(&p->residual, t->result + offset, t->element_type);
        partition_done(x, t);
    } else if (event->kind == GL_EVENT_LOST && p->residual.slices) {
        gl_residual_keep(&p->residual, t->gathered + offset, event->first_slice, event->slices, event->lost);
        x->statistics.kept_slices += event->lost_slices;
    }
}
