/* SPDX-License-Identifier: Apache-2.0
 * What both of the benchmark's loads on the engine have: the all-reduce, all of which rank 0 owns, what is found of it, and the
 * clock. */
#ifndef CORE_COMMON_H
#define CORE_COMMON_H

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/receiving.h"

enum {
    JOB = 1, TOKEN = 7,
    RATE = 12500,  /* bytes per us of each rank's link */
    STEP = 10,     /* us until somebody may send, where nobody could */
    MOST = 100000, /* such steps, of an all-reduce that ends */
    BUFFERS = 256  /* as a runner has them */
};

/* ns, and slices. `control`: all that rank 0 does without slices. */
typedef struct {
    uint64_t received_ns, received, sent_ns, sent, taken_ns, taken, control_ns;
    uint64_t wrong; /* elements of the result */
} core_figures;

typedef struct {
    unsigned ranks;
    uint32_t elements, slice_bytes, step;
    float *in;
    uint32_t *shares;
    buffers *buffers;
    uint64_t now, clock; /* us; ns that measuring adds */
    core_figures figures;
} common;

/* Of this thread's CPU time. */
static inline uint64_t ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What is measured where nothing is done: a call of the clock, which takes 100 to 500 ns. */
static inline uint64_t least_ns(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        const uint64_t begun = ns(), took = ns() - begun;
        if (took < least) least = took;
    }
    return least;
}

/* Without the clock's part. */
static inline uint64_t since(uint64_t begun, uint64_t clock) {
    const uint64_t took = ns() - begun;
    return took > clock ? took - clock : 0;
}

/* So many results in one piece; each begins at a cache line. */
static inline size_t floats_of(const common *c) { return ((size_t)c->elements + 15) / 16 * 16; }
static inline float *floats_new(const common *c, unsigned results) {
    return aligned_alloc(64, results * floats_of(c) * sizeof(float));
}

/* False: memory is out; common_free is called in any case. */
static inline bool common_new(common *c, unsigned ranks, uint32_t elements, uint32_t slice_bytes) {
    *c = (common){.ranks = ranks, .elements = elements, .slice_bytes = slice_bytes, .now = 1000000, .clock = least_ns()};
    c->in = floats_new(c, 1), c->shares = malloc((ranks + 1) * sizeof *c->shares), c->buffers = buffers_new(BUFFERS);
    if (!c->in || !c->shares || !c->buffers) return false;
    for (uint32_t i = 0; i < elements; i++) c->in[i] = (float)(i % 1021);
    for (unsigned k = 0; k <= ranks; k++) c->shares[k] = k > 0;
    return true;
}

static inline void common_free(common *c) { free(c->in), free(c->shares), buffers_leave(c->buffers); }

/* NULL: memory is out. */
static inline gl_engine *engine_of(const common *c, unsigned rank) {
    const gl_config config = {
        .job = JOB, .rank = (uint16_t)rank, .workers = (uint16_t)c->ranks, .slice_bytes = (uint16_t)c->slice_bytes,
        .token = TOKEN, .window = 64, .rate = RATE * 8000000ull, .buffer = 16000000, .memory = (uint64_t)1 << 34};
    gl_engine *e = gl_engine_new(&config);
    if (e) receive_into(e, c->buffers);
    return e;
}

/* The part in it of the rank whose engine this is. -1: it is refused. */
static inline int submit(common *c, gl_engine *e, float *out, int timed) {
    const gl_submission s = {
        .step = c->step, .collective = GL_ALL_REDUCE, .algorithm = GL_DIRECT, .element_type = GL_TYPE_FLOAT32,
        .reduction = GL_SUM, .elements = c->elements, .in = (const uint8_t *)c->in, .out = (uint8_t *)out, .shares = c->shares};
    const uint64_t begun = ns();
    if (gl_submit(e, &s, c->now)) return -1;
    if (timed) c->figures.control_ns += since(begun, c->clock);
    return 0;
}

static inline int completed(gl_engine *e) {
    int found = 0;
    for (gl_event *event; (event = gl_next_event(e)); gl_event_free(event)) found |= event->kind == GL_EVENT_COMPLETED;
    return found;
}

static inline void check(common *c, const float *out) {
    for (uint32_t i = 0; i < c->elements; i++) c->figures.wrong += out[i] != (float)(i % 1021) * (float)c->ranks;
}

#endif
