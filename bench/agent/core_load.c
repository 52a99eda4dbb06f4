/* SPDX-License-Identifier: Apache-2.0
 * The benchmark's load on the engine: one for each rank, and what one sends lies in a buffer in front of the other, as
 * the kernel leaves it. Rank 0 owns all elements of an all-reduce, so a contribution comes in from each of the others, and
 * the result goes out to each. Only what rank 0 does, and what rank 1 does with results, is counted. */
#include <stdlib.h>
#include <string.h>

#include "core_figures.h"
#include "engine/receiving.h"

typedef struct {
    unsigned ranks;
    uint32_t elements, slice_bytes;
    gl_engine **engines;
    float *in, *out;
    uint32_t *shares;
    buffers *buffers;
    uint8_t *buffer;
    gl_batch batch;
    uint64_t now, clock; /* us; ns that measuring adds */
    uint32_t step;
    core_figures figures;
} core_load;

void core_load_free(core_load *l) {
    if (!l) return;
    for (unsigned rank = 0; l->engines && rank < l->ranks; rank++) gl_engine_free(l->engines[rank]);
    free(l->engines), free(l->in), free(l->out), free(l->shares), buffers_leave(l->buffers), free(l);
}

/* NULL: memory is out. */
core_load *core_load_new(unsigned ranks, uint32_t elements, uint32_t slice_bytes) {
    core_load *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    *l = (core_load){.ranks = ranks, .elements = elements, .slice_bytes = slice_bytes, .now = 1000000, .clock = least_ns()};
    const size_t bytes = (elements * sizeof(float) + 63) / 64 * 64;
    l->engines = calloc(ranks, sizeof *l->engines);
    l->in = aligned_alloc(64, bytes), l->out = aligned_alloc(64, 3 * bytes);
    l->shares = malloc((ranks + 1) * sizeof *l->shares);
    l->buffers = buffers_new(BUFFERS);
    l->buffer = l->buffers ? buffer_take(l->buffers) : NULL;
    if (!l->engines || !l->in || !l->out || !l->shares || !l->buffer) return core_load_free(l), NULL;
    for (uint32_t i = 0; i < elements; i++) l->in[i] = (float)(i % 1021);
    for (unsigned k = 0; k <= ranks; k++) l->shares[k] = k > 0;
    for (unsigned rank = 0; rank < ranks; rank++) {
        const gl_config config = {
            .job = 1, .rank = (uint16_t)rank, .workers = (uint16_t)ranks, .slice_bytes = (uint16_t)slice_bytes, .token = 7,
            .window = 64, .rate = 100000000000, .buffer = 16000000, .memory = (uint64_t)1 << 34};
        if (!(l->engines[rank] = gl_engine_new(&config))) return core_load_free(l), NULL;
        receive_into(l->engines[rank], l->buffers);
    }
    return l;
}

/* Where the result of a rank goes: rank 0's, rank 1's, all others'. */
static float *out_of(const core_load *l, unsigned rank) {
    return l->out + (rank > 1 ? 2 : rank) * (((size_t)l->elements + 15) / 16 * 16);
}

static void deliver_to(core_load *l, unsigned rank, uint32_t bytes, uint32_t segment, unsigned slices, int timed) {
    const uint64_t begun = timed ? ns() : 0;
    receive_train(l->engines[rank], l->buffer, bytes, segment, false, slices > 8, l->now);
    l->buffer = buffer_exchange(l->buffers, l->buffer);
    if (!timed) return;
    const uint64_t took = since(begun, l->clock);
    core_figures *f = &l->figures;
    if (!slices)
        f->control_ns += rank ? 0 : took;
    else if (rank)
        f->taken += slices, f->taken_ns += took;
    else
        f->received += slices, f->received_ns += took;
}

/* What is in the batch, in a buffer as a whole. */
static void deliver(core_load *l, int timed) {
    const gl_batch *b = &l->batch;
    unsigned slices = 0;
    uint8_t *to = l->buffer;
    for (int i = 0, n = 0; n < b->datagrams; n++) {
        const uint8_t *h = b->iov[i].iov_base;
        slices += (h[0] & 15) == GL_KIND_DATA || (h[0] & 15) == GL_KIND_REPAIR;
        for (int k = 0; k < b->pieces[n]; k++, i++) {
            memcpy(to, b->iov[i].iov_base, b->iov[i].iov_len);
            to += b->iov[i].iov_len;
        }
    }
    deliver_to(l, b->to, (uint32_t)(to - l->buffer), b->segment, slices, timed && b->to <= 1);
}

/* Whether a rank had something to send. */
static int send_of(core_load *l, unsigned rank, int timed) {
    const uint64_t begun = ns();
    const int some = gl_transmit(l->engines[rank], &l->batch, l->now);
    const uint64_t took = since(begun, l->clock);
    if (timed && !rank) {
        const uint8_t kind = some ? ((const uint8_t *)l->batch.iov[0].iov_base)[0] & 15 : 0;
        if (some && (kind == GL_KIND_DATA || kind == GL_KIND_REPAIR))
            l->figures.sent += l->batch.datagrams, l->figures.sent_ns += took;
        else
            l->figures.control_ns += took;
    }
    if (some) deliver(l, timed);
    return some;
}

static int completed(gl_engine *e) {
    int found = 0;
    for (gl_event *event; (event = gl_next_event(e)); gl_event_free(event)) found |= event->kind == GL_EVENT_COMPLETED;
    return found;
}

/* An all-reduce. 0, or -1: an engine refused it, or it does not end. What it took is added to what is in the figures if it is `timed`. */
int core_load_run(core_load *l, int timed, core_figures *figures) {
    unsigned open = l->ranks, steps = MOST;
    memset(l->out, 0, l->elements * sizeof(float));
    l->figures = *figures;
    l->step++;
    for (unsigned rank = 0; rank < l->ranks; rank++) {
        const gl_submission s = {
            .step = l->step, .collective = GL_ALL_REDUCE, .algorithm = GL_DIRECT, .element_type = GL_TYPE_FLOAT32,
            .reduction = GL_SUM, .elements = l->elements, .in = (const uint8_t *)l->in, .out = (uint8_t *)out_of(l, rank),
            .shares = l->shares};
        const uint64_t begun = ns();
        if (gl_submit(l->engines[rank], &s, l->now)) return -1;
        if (timed && !rank) l->figures.control_ns += since(begun, l->clock);
    }
    while (open) {
        int some = 0;
        for (unsigned rank = 0; rank < l->ranks; rank++) some |= send_of(l, rank, timed);
        for (unsigned rank = 0; rank < l->ranks; rank++) open -= completed(l->engines[rank]);
        if (!some && !--steps) return -1;
        if (!some) l->now += STEP;
    }
    for (uint32_t i = 0; i < l->elements; i++) l->figures.wrong += l->out[i] != (float)(i % 1021) * (float)l->ranks;
    *figures = l->figures;
    return 0;
}
