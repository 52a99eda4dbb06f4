/* SPDX-License-Identifier: Apache-2.0
 *
 * The same for a tensor that a switch sums, in a job with a loss budget: a step by hosts, and one that the switch does not
 * complete, so that hosts do it again.
 */
#include <string.h>

#include "engine/engine.h"
#include "exhaustion.h"

enum { WORKERS = 3, ELEMENTS = 200, SLICE = 144, LONGEST = GL_HEADER + SLICE, QUEUE = 1 << 12, LIMIT = 5000000 /* us */ };

typedef struct {
    uint16_t to, length;
    uint8_t bytes[LONGEST];
} datagram;

static datagram queue[QUEUE];
static unsigned head, tail;
static uint64_t now;
static gl_engine *engines[WORKERS];
static float in[WORKERS][ELEMENTS], out[WORKERS][ELEMENTS];
static unsigned completed;
static bool over; /* somebody's memory was out, which was told */

static void set_up(void) {
    static const gl_loss losses[] = {{0, 65535, 300000, 0}};
    static const uint64_t elements[] = {ELEMENTS};
    const gl_sum_stream stream = {.element_type = GL_TYPE_FLOAT32, .count = 1, .elements = elements};
    for (unsigned rank = 0; rank < WORKERS; rank++) {
        const gl_config c = {.job = 1, .rank = (uint16_t)rank, .workers = WORKERS, .slice_bytes = SLICE, .window = 4,
                             .rate = 1000000000, .buffer = 64000, .loss_count = 1, .losses = losses, .memory = 1 << 20,
                             .sums = {GL_TYPE_INT16_LANES, 16, 4, 1}};
        engines[rank] = gl_engine_new(&c);
        if (!engines[rank] || gl_engine_sums_open(engines[rank], &stream)) over = true;
    }
}

static void submit(uint32_t step) {
    completed = 0;
    for (unsigned rank = 0; rank < WORKERS && !over; rank++) {
        for (unsigned i = 0; i < ELEMENTS; i++) in[rank][i] = (float)(1 + (rank + step + i) % 4);
        const gl_submission s = {.step = step, .collective = GL_ALL_REDUCE, .algorithm = GL_DIRECT,
                                 .element_type = GL_TYPE_FLOAT32, .reduction = GL_SUM, .elements = ELEMENTS,
                                 .in = (uint8_t *)in[rank], .out = (uint8_t *)out[rank], .push_loss = 300000, .generation = 1};
        if (gl_submit(engines[rank], &s, now)) over = true;
    }
}

static void send(unsigned rank) {
    static gl_batch b;
    while (gl_transmit(engines[rank], &b, now)) {
        const uint8_t *at = b.iov[0].iov_base;
        for (unsigned k = 0, piece = 0; k < b.datagrams; k++) {
            datagram *d = &queue[tail % QUEUE];
            d->to = b.to, d->length = 0;
            for (unsigned i = 0; i < b.pieces[k]; i++, piece++) {
                at = b.iov[piece].iov_base;
                memcpy(d->bytes + d->length, at, b.iov[piece].iov_len);
                d->length = (uint16_t)(d->length + b.iov[piece].iov_len);
            }
            if (b.to < WORKERS) tail++; /* the switch sums nothing */
        }
        CHECK(tail - head < QUEUE);
    }
    for (gl_event *e; (e = gl_next_event(engines[rank])); gl_event_free(e)) {
        completed += e->kind == GL_EVENT_COMPLETED;
        over |= e->kind == GL_EVENT_FAILED;
        CHECK(e->kind == GL_EVENT_COMPLETED || e->kind == GL_EVENT_FAILED);
    }
}

static void run(uint64_t us) {
    for (const uint64_t end = now + us; now < end && completed < WORKERS && !over; now += 100) {
        for (unsigned rank = 0; rank < WORKERS; rank++) send(rank);
        for (; head != tail; head++) {
            const datagram *d = &queue[head % QUEUE];
            gl_receive(engines[d->to], d->bytes, d->length, 0, now);
        }
    }
}

static void check(uint32_t step) {
    for (unsigned rank = 0; rank < WORKERS; rank++)
        for (unsigned i = 0; i < ELEMENTS; i++) {
            float sum = 0;
            for (unsigned other = 0; other < WORKERS; other++) sum += (float)(1 + (other + step + i) % 4);
            CHECK(out[rank][i] == sum);
        }
}

static void story(void) {
    static const gl_sum_rerun again = {0, 2};
    set_up();
    submit(1);
    run(LIMIT);
    if (over) return;
    CHECK(completed == WORKERS);
    check(1);
    submit(2);
    run(100000);
    if (over) return;
    for (unsigned rank = 0; rank < WORKERS; rank++) {
        gl_engine_sums_halt(engines[rank]);
        CHECK(!gl_engine_sums_resume(engines[rank], 1, 0, &again, 1, now));
    }
    run(LIMIT);
    if (over) return;
    CHECK(completed == WORKERS);
    check(2);
}

unsigned long exhaust_sums(void) {
    unsigned long n = 0;
    do {
        out_of_memory_at(++n, false);
        head = tail = 0, now = 1000000, over = false;
        scarce = true;
        story();
        scarce = false;
        for (unsigned rank = 0; rank < WORKERS; rank++) gl_engine_free(engines[rank]), engines[rank] = NULL;
    } while (allocations >= n);
    return n;
}
