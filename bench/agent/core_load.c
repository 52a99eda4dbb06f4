/* SPDX-License-Identifier: Apache-2.0
 * The benchmark's load on the engine: one for each rank, and what one sends lies in a buffer in front of the other, as
 * the kernel leaves it. A contribution comes to rank 0 from each of the others, and the result goes out to each. Only what
 * rank 0 does, and what rank 1 does with results, is counted. */
#include "core_common.h"

typedef struct {
    common of;
    gl_engine **engines;
    float *out;
    uint8_t *buffer;
    gl_batch batch;
} core_load;

void core_load_free(core_load *l) {
    if (!l) return;
    for (unsigned rank = 0; l->engines && rank < l->of.ranks; rank++) gl_engine_free(l->engines[rank]);
    free(l->engines), free(l->out), common_free(&l->of), free(l);
}

/* NULL: memory is out. */
core_load *core_load_new(unsigned ranks, uint32_t elements, uint32_t slice_bytes) {
    core_load *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    if (!common_new(&l->of, ranks, elements, slice_bytes) || !(l->engines = calloc(ranks, sizeof *l->engines)) ||
        !(l->out = floats_new(&l->of, 3)) || !(l->buffer = buffer_take(l->of.buffers)))
        return core_load_free(l), NULL;
    for (unsigned rank = 0; rank < ranks; rank++)
        if (!(l->engines[rank] = engine_of(&l->of, rank))) return core_load_free(l), NULL;
    return l;
}

/* Where the result of a rank goes: rank 0's, rank 1's, all others'. */
static float *out_of(const core_load *l, unsigned rank) { return l->out + (rank > 1 ? 2 : rank) * floats_of(&l->of); }

static void deliver_to(core_load *l, unsigned rank, uint32_t bytes, uint32_t segment, unsigned slices, int timed) {
    const uint64_t begun = timed ? ns() : 0;
    receive_train(l->engines[rank], l->buffer, bytes, segment, false, slices > 8, l->of.now);
    l->buffer = buffer_exchange(l->of.buffers, l->buffer);
    if (!timed) return;
    const uint64_t took = since(begun, l->of.clock);
    core_figures *f = &l->of.figures;
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
    const int some = gl_transmit(l->engines[rank], &l->batch, l->of.now);
    const uint64_t took = since(begun, l->of.clock);
    if (timed && !rank) {
        const uint8_t kind = some ? ((const uint8_t *)l->batch.iov[0].iov_base)[0] & 15 : 0;
        if (some && (kind == GL_KIND_DATA || kind == GL_KIND_REPAIR))
            l->of.figures.sent += l->batch.datagrams, l->of.figures.sent_ns += took;
        else
            l->of.figures.control_ns += took;
    }
    if (some) deliver(l, timed);
    return some;
}

/* An all-reduce. 0, or -1: an engine refused it, or it does not end. What it took is added to the figures if it is `timed`. */
int core_load_run(core_load *l, int timed, core_figures *figures) {
    common *c = &l->of;
    unsigned open = c->ranks, steps = MOST;
    memset(l->out, 0, c->elements * sizeof(float));
    c->figures = *figures;
    c->step++;
    for (unsigned rank = 0; rank < c->ranks; rank++)
        if (submit(c, l->engines[rank], out_of(l, rank), timed && !rank)) return -1;
    while (open) {
        int some = 0;
        for (unsigned rank = 0; rank < c->ranks; rank++) some |= send_of(l, rank, timed);
        for (unsigned rank = 0; rank < c->ranks; rank++) open -= completed(l->engines[rank]);
        if (!some && !--steps) return -1;
        if (!some) c->now += STEP;
    }
    check(c, l->out);
    *figures = c->figures;
    return 0;
}
