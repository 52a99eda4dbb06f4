/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
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
#include "exchange/absence.h"
#include "exchange/ownership.h"
#include "wire.h"

void tensor_free(tensor *t) {
    if (!t) return;
    for (unsigned i = 0; i < t->count; i++) {
        free(t->partitions[i].layers), free(t->partitions[i].missed);
        gl_residual_free(&t->partitions[i].residual);
    }
    absences_free(t);
    if (t->own_memory) free(t->gathered);
    free(t->magnitudes), free(t->means), free(t);
}

static bool lossy(const gl_tensor *like, const gl_partition *p) {
    return (p->push_loss || p->pull_loss || p->late) && like->element_type != GL_TYPE_FLOAT64;
}

/* Whether the switch may sum it. */
static bool is_summed(gl_exchange *x, const gl_tensor *like) {
    uint64_t elements[GL_MAX_PARTITIONS];
    if (!like->summed) return false;
    for (unsigned k = 0; k < like->partition_count; k++) elements[k] = like->partitions[k].elements;
    const gl_sum_stream stream = {like->id, like->element_type, (uint8_t)like->partition_count, elements};
    return !gl_engine_sums_open(x->engine, &stream);
}

static bool partition_new(const gl_exchange *x, const tensor *t, partition *p, const gl_tensor *like,
                          const gl_partition *is, const uint16_t *layers) {
    const uint64_t bytes = is->elements * gl_element_bytes(t->element_type);
    const bool owes = (lossy(like, is) || p->summed) && t->feedback;
    p->is = *is;
    p->lossy = lossy(like, is);
    /* What all arrive for is the mean of all, and who is late is waited for. A worker without the result could not tell what of the
     * mean of what arrived stands for what it has lost. A switch can't divide by how many arrived, and hosts do as it does. */
    const bool whole = !p->lossy || p->summed || (owes && is->pull_loss);
    p->reduction = whole && t->reduction == GL_MEAN_OF_ARRIVED ? GL_MEAN : t->reduction;
    p->slices = (uint32_t)((bytes + x->config.slice_bytes - 1) / x->config.slice_bytes);
    p->layers = malloc(p->slices * sizeof *p->layers);
    if (!p->layers) return false;
    memcpy(p->layers, layers, p->slices * sizeof *p->layers);
    if (owes && is->pull_loss && !(p->missed = calloc((p->slices + 63) / 64, sizeof *p->missed))) return false;
    return !owes || !gl_residual_new(&p->residual, bytes, x->config.slice_bytes);
}

/* Its contribution stays as it was until its result is there. */
static bool is_kept(const partition *p) { return p->lossy || p->summed; }

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
    t->step = x->steps[t->id];
    memcpy(t->contributions, like->contributions, x->config.processes * sizeof *t->contributions);
    const uint16_t *layers = like->layers;
    bool exact = true;
    const bool summed = is_summed(x, like);
    for (; t->count < like->partition_count; t->count++) {
        partition *p = &t->partitions[t->count];
        p->summed = summed;
        if (!partition_new(x, t, p, like, &like->partitions[t->count], layers)) return t->count++, tensor_free(t), -1;
        layers += p->slices;
        exact = exact && !is_kept(p);
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

int gl_exchange_idle(const gl_exchange *x, unsigned id) {
    const tensor *t = id < GL_MAX_TENSORS ? x->tensors[id] : NULL;
    return t && !t->present && !t->absences;
}

void *gl_exchange_release_tensor(gl_exchange *x, unsigned id) {
    if (!gl_exchange_idle(x, id)) return NULL;
    tensor *t = x->tensors[id];
    x->tensors[id] = NULL;
    x->steps[id] = t->step; /* what comes under its number goes on from there: its last operation may still serve repairs */
    return t;
}

void gl_tensor_free(void *released) { tensor_free(released); }

int gl_exchange_residual(gl_exchange *x, unsigned id, unsigned index, uint8_t *values, int import) {
    tensor *t = id < GL_MAX_TENSORS ? x->tensors[id] : NULL;
    if (!t || t->open || index >= t->count) return -1; /* what only some processes have submitted has not begun */
    partition *p = &t->partitions[index];
    const uint32_t item = gl_element_bytes(t->element_type);
    uint8_t *at = values + p->is.first * item;
    if (p->residual.slices)
        import ? gl_residual_import(&p->residual, at) : gl_residual_export(&p->residual, at);
    else if (!import)
        memset(at, 0, p->is.elements * item);
    return (int)(t->count - index - 1);
}

static void finish(gl_exchange *x, tensor *t, uint64_t now) {
    t->present = 0, t->arrived = 0, t->begun = 0;
    x->under_way--;
    x->statistics.completed++;
    x->statistics.elements += t->elements;
    x->statistics.reduced_bytes += t->elements * gl_element_bytes(t->element_type);
    for (unsigned k = 0; k < x->config.processes; k++) completed(x, k, t->slots[k], GL_DONE);
    absences_look(x, t, now);
}

static void partition_done(gl_exchange *x, tensor *t, uint64_t now) {
    if (--t->open == 0) finish(x, t, now);
}

/* The result of a step that began without the processes, if it is there and they are. */
static void deliver(gl_exchange *x, tensor *t, uint64_t now) {
    for (unsigned left = absence_over(x, t) ? t->count : 0; left; left--) partition_done(x, t, now);
}

/* The quantile of each slice within its message: a message carries what one owner reduces. */
static void rank_slices(const gl_exchange *x, const tensor *t, const partition *p) {
    const uint32_t *shares = shares_of(plan_at(x, t->step));
    const unsigned owners = owners_of(x);
    for (unsigned k = 0; k < owners; k++) {
        const uint32_t first = gl_shard_start(p->slices, shares, k, owners);
        const uint32_t count = gl_shard_start(p->slices, shares, k + 1, owners) - first;
        if (count) gl_quantiles(t->means + first, count, t->magnitudes + first);
    }
}

static bool is_mean(const tensor *t) { return t->reduction == GL_MEAN || t->reduction == GL_MEAN_OF_ARRIVED; }

/* Contributions of which nothing may be lost. Returns the bytes of them that were combined, a piece at most. */
static uint64_t combine(gl_exchange *x, tensor *t, const partition *p) {
    const unsigned processes = x->config.processes;
    const uint32_t item = gl_element_bytes(t->element_type);
    const uint64_t at = p->is.first * item + t->done, left = p->is.elements * item - t->done;
    const uint64_t bytes = processes == 1 || left < PIECE ? left : PIECE;
    const uint8_t *sources[GL_MAX_PROCESSES];
    t->done += bytes;
    if (processes == 1) return 0;
    for (unsigned k = 0; k < processes; k++) sources[k] = t->contributions[k] + at;
    reduce_local(t->gathered + at, sources, processes, t->reduction, bytes / item, t->element_type);
    x->statistics.copied_bytes += bytes;
    return bytes * processes;
}

/* Contributions with what is owed to them, and their worth. As `combine`. */
static uint64_t contribute(gl_exchange *x, tensor *t, partition *p) {
    const unsigned processes = x->config.processes;
    const uint32_t item = gl_element_bytes(t->element_type), per_slice = x->config.slice_bytes / item;
    const uint64_t begin = p->is.first * item, end = p->is.elements * item, from = t->done;
    const uint8_t *sources[GL_MAX_PROCESSES];
    for (uint32_t slice = (uint32_t)(from / x->config.slice_bytes); t->done < end && t->done - from < PIECE; slice++) {
        const uint64_t first = (uint64_t)slice * per_slice, left = p->is.elements - first;
        const uint64_t offset = begin + first * item, elements = left < per_slice ? left : per_slice;
        for (unsigned k = 0; k < processes; k++) sources[k] = t->contributions[k] + offset;
        const uint8_t *owed = p->residual.owed ? gl_residual_take(&p->residual, slice) : NULL;
        const gl_worth worth = gl_contribute(t->gathered + offset, sources, processes, is_mean(t) ? processes : 1, owed,
                                             elements, t->element_type);
        t->means[slice] = worth.mean;
        t->squares += worth.squares;
        t->done += elements * item;
        if (alone(x) && t->result != t->gathered) memcpy(t->result + offset, t->gathered + offset, elements * item);
    }
    if (processes > 1) x->statistics.copied_bytes += t->done - from;
    return (t->done - from) * processes;
}

/* Of a partition that is prepared. */
static void submit_partition(gl_exchange *x, tensor *t, unsigned index, uint64_t now) {
    const partition *p = &t->partitions[index];
    const uint64_t offset = p->is.first * gl_element_bytes(t->element_type);
    if (p->lossy) {
        rank_slices(x, t, p);
        gl_tolerance_observe(&x->tolerance, t->step, t->squares);
    }
    if (alone(x)) {
        partition_done(x, t, now);
        return;
    }
    if (absence_took(x, t, index)) {
        deliver(x, t, now);
        return;
    }
    gl_submission s = of_partition(x, t, p, t->step);
    s.in = t->gathered + offset, s.out = t->result + offset;
    s.magnitudes = p->lossy ? t->magnitudes : NULL;
    submit(x, &s, now);
}

/* Where the worth of the slices of the partition that is next goes. False: memory is out, which fails the job. */
static bool make_room(gl_exchange *x, tensor *t, const partition *p) {
    if (t->done || !is_kept(p)) return true;
    free(t->magnitudes), free(t->means);
    t->magnitudes = malloc(p->slices), t->means = malloc(p->slices * sizeof *t->means), t->squares = 0;
    if (t->magnitudes && t->means) return true;
    fail(x, GL_FAILURE_MEMORY, 0, t->id * GL_MAX_PARTITIONS, t->step, "memory is out");
    return false;
}

/* The front layers' work first: the next forward pass begins with them. */
static tensor **most_urgent(gl_exchange *x) {
    tensor **best = &x->work;
    for (tensor **at = &x->work; *at; at = &(*at)->next)
        if ((*at)->partitions[(*at)->begun].layers[0] < (*best)->partitions[(*best)->begun].layers[0]) best = at;
    return best;
}

uint64_t tensor_work(gl_exchange *x, uint64_t now) {
    tensor **at = most_urgent(x), *t = *at;
    partition *p = &t->partitions[t->begun];
    if (!make_room(x, t, p)) return 0;
    const uint64_t worked = is_kept(p) ? contribute(x, t, p) : combine(x, t, p);
    if (t->done < p->is.elements * gl_element_bytes(t->element_type)) return worked;
    if (t->begun + 1 == t->count) *at = t->next; /* before it can be completed, and begin anew */
    t->done = 0;
    submit_partition(x, t, t->begun++, now);
    return worked + SUBMISSION_BYTES;
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
    t->begun = 0, t->done = 0, t->open = t->count;
    step_begin(x, t);
}

/* Where a result was lost the own contribution is in its place; but what is owed is not to count twice. */
static void apply_nothing(const gl_exchange *x, partition *p, uint8_t *result, uint64_t bytes) {
    for (uint32_t word = 0; word < (p->slices + 63) / 64; word++) {
        for (uint64_t both = p->missed[word] & p->residual.lost[word]; both; both &= both - 1) {
            const uint64_t at = (word * 64ull + (unsigned)__builtin_ctzll(both)) * x->config.slice_bytes;
            memset(result + at, 0, bytes - at < x->config.slice_bytes ? bytes - at : x->config.slice_bytes);
        }
        p->missed[word] = 0;
    }
}

/* Others wait for what this host owns of a step that its processes have not come to. They can have gone on without it for
 * `late_steps` steps: what comes of a later one is none of theirs. */
static void begin_without(gl_exchange *x, const tensor *t, const partition *p, uint32_t step, uint64_t now) {
    const gl_submission s = of_partition(x, t, p, step);
    if (step <= t->step || step - t->step > x->config.late_steps || !s.late) return;
    if (!gl_submit(x->engine, &s, now)) step_has_begun(x, step); /* or they wait on */
}

void tensor_event(gl_exchange *x, const gl_event *event, uint64_t now) {
    tensor *t = x->tensors[event->tensor / GL_MAX_PARTITIONS];
    const unsigned index = event->tensor % GL_MAX_PARTITIONS;
    if (!t || index >= t->count) return; /* of nothing that was submitted here */
    partition *p = &t->partitions[index];
    const uint64_t offset = p->is.first * gl_element_bytes(t->element_type);
    if (absence_event(x, t, event, now)) {
        deliver(x, t, now);
        return;
    }
    if (event->kind == GL_EVENT_LATE) {
        if (p->summed)
            absence_asked(x, t, event->step, now);
        else
            begin_without(x, t, p, event->step, now);
    } else if (event->kind == GL_EVENT_COMPLETED) {
        if (p->missed) apply_nothing(x, p, t->result + offset, p->is.elements * gl_element_bytes(t->element_type));
        /* The mean of what arrived stood for what did not: only the difference is owed. */
        if (p->reduction == GL_MEAN_OF_ARRIVED) gl_residual_subtract(&p->residual, t->result + offset, t->element_type);
        partition_done(x, t, now);
    } else if (event->kind == GL_EVENT_MISSED && p->missed) {
        for (uint32_t i = 0, slice = event->first_slice; i < event->slices; i++, slice++)
            p->missed[slice / 64] |= (uint64_t)(event->lost[i / 8] >> (i % 8) & 1) << (slice % 64);
    } else if (event->kind == GL_EVENT_LOST && p->residual.slices) {
        gl_residual_keep(&p->residual, t->gathered + offset, event->first_slice, event->slices, event->lost);
        x->statistics.kept_slices += event->lost_slices;
        /* No budget is as large as a message. */
        if (event->lost_slices == event->slices && event->step > x->left_out)
            x->left_out = event->step, x->statistics.left_out++;
    }
}
