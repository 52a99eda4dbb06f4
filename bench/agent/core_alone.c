/* SPDX-License-Identifier: Apache-2.0
 * As core_load.c, but with one engine, which has the cache to itself: what the other ranks send is written here, and not
 * counted. They go at one pace, a train of each in turn, of as many slices as a flow with its part of the link sends at once. */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/sender.h"
#include "core_figures.h"
#include "engine/receiving.h"
#include "rate/pacing.h"

enum {
    JOB = 1, TOKEN = 7,
    RATE = 12500,     /* bytes per us */
    LONGEST = 44      /* slices of a train */
};

/* Another rank, as it takes the result. */
typedef struct {
    uint32_t received, unreported, missing; /* slices; since the job began, since its last REPORT, of this step */
} peer;

typedef struct {
    unsigned ranks, stride;
    uint32_t elements, slice_bytes, slices, train;
    gl_engine *engine;
    peer *peers;
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
    gl_engine_free(l->engine);
    free(l->peers), free(l->in), free(l->out), free(l->shares), buffers_leave(l->buffers), free(l);
}

static uint32_t train_of(const core_load *l) {
    const uint32_t most = RATE / (l->ranks - 1) * BURST / (GL_HEADER + l->slice_bytes);
    const uint32_t fits = BUFFER_BYTES / (GL_HEADER + l->slice_bytes), longest = fits < LONGEST ? fits : LONGEST;
    return most < 1 ? 1 : most < longest ? most : longest;
}

/* NULL: memory is out. */
core_load *core_load_new(unsigned ranks, uint32_t elements, uint32_t slice_bytes) {
    core_load *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    *l = (core_load){.ranks = ranks, .stride = 1, .elements = elements, .slice_bytes = slice_bytes,
                     .slices = (uint32_t)((elements * sizeof(float) + slice_bytes - 1) / slice_bytes), .now = 1000000,
                     .clock = least_ns()};
    while (l->stride < ranks) l->stride *= 2;
    l->train = train_of(l);
    const size_t bytes = (elements * sizeof(float) + 63) / 64 * 64;
    l->peers = calloc(ranks, sizeof *l->peers);
    l->in = aligned_alloc(64, bytes), l->out = aligned_alloc(64, bytes);
    l->shares = malloc((ranks + 1) * sizeof *l->shares);
    l->buffers = buffers_new(BUFFERS);
    l->buffer = l->buffers ? buffer_take(l->buffers) : NULL;
    const gl_config config = {
        .job = JOB, .workers = (uint16_t)ranks, .slice_bytes = (uint16_t)slice_bytes, .token = TOKEN, .window = 64,
        .rate = RATE * 8000000ull, .buffer = 16000000, .memory = (uint64_t)1 << 34};
    if (!l->peers || !l->in || !l->out || !l->shares || !l->buffer || !(l->engine = gl_engine_new(&config)))
        return core_load_free(l), NULL;
    receive_into(l->engine, l->buffers);
    for (uint32_t i = 0; i < elements; i++) l->in[i] = (float)(i % 1021);
    for (unsigned k = 0; k <= ranks; k++) l->shares[k] = k > 0;
    return l;
}

static void put_kind(uint8_t *h, unsigned kind, unsigned source, uint32_t length) {
    h[0] = (uint8_t)(GL_VERSION << 4 | kind);
    put_sender(h, 0, source);
    put16(h + GL_AT_LENGTH, (uint16_t)length);
}

/* An answer of a rank to what is in the batch. */
static void answer(core_load *l, unsigned rank, unsigned kind, const uint8_t *payload, uint32_t length, int timed) {
    uint8_t h[GL_HEADER + GL_MAX_SLICES / 8];
    memcpy(h, l->batch.iov[0].iov_base, GL_HEADER);
    put_kind(h, kind, rank, length);
    if (kind == GL_KIND_STOP) h[GL_AT_FLAGS] = GL_FLAG_PULL;
    memcpy(h + GL_HEADER, payload, length);
    const uint64_t begun = ns();
    gl_receive(l->engine, h, GL_HEADER + length, 0, l->now);
    if (timed) l->figures.control_ns += since(begun, l->clock);
}

/* Slices of the result reach a rank, which answers as engines do. */
static void take(core_load *l, unsigned rank, uint32_t slices, int timed) {
    peer *p = &l->peers[rank];
    p->received += slices, p->unreported += slices, p->missing -= slices;
    if (p->unreported >= REPORT_EVERY || !p->missing) {
        uint8_t payload[GL_REPORT] = {0};
        put32(payload + GL_REPORT_AT_RECEIVED, p->received), put32(payload + GL_REPORT_AT_SHARE, RATE * 8000u);
        put32(payload + GL_REPORT_AT_ROOM, UINT32_MAX), put32(payload + GL_REPORT_AT_CLOCK, (uint32_t)l->now);
        p->unreported = 0;
        answer(l, rank, GL_KIND_REPORT, payload, sizeof payload, timed);
    }
    if (p->missing) return;
    uint8_t all[GL_MAX_SLICES / 8] = {0};
    for (uint32_t i = 0; i < l->slices; i++) all[i / 8] |= (uint8_t)(1 << i % 8);
    answer(l, rank, GL_KIND_STOP, all, (l->slices + 7) / 8, timed);
}

/* Whether the engine had something to send. */
static int send_some(core_load *l, int timed) {
    const uint64_t begun = ns();
    const int some = gl_transmit(l->engine, &l->batch, l->now);
    const uint64_t took = since(begun, l->clock);
    const gl_batch *b = &l->batch;
    const uint8_t kind = some ? ((const uint8_t *)b->iov[0].iov_base)[0] & 15 : GL_KIND_PROBE;
    const int data = kind == GL_KIND_DATA || kind == GL_KIND_REPAIR;
    if (timed && data)
        l->figures.sent += b->datagrams, l->figures.sent_ns += took;
    else if (timed)
        l->figures.control_ns += took;
    if (data) take(l, b->to, b->datagrams, timed);
    return some;
}

/* The next slices of a rank's contribution, from this one on. */
static void contribute(core_load *l, unsigned rank, uint32_t first, int timed) {
    const uint32_t count = l->slices - first < l->train ? l->slices - first : l->train;
    uint8_t *h = l->buffer;
    for (uint32_t slice = first; slice < first + count; slice++) {
        const size_t at = (size_t)slice * l->slice_bytes, left = l->elements * sizeof(float) - at;
        const uint32_t length = left < l->slice_bytes ? (uint32_t)left : l->slice_bytes;
        memset(h, 0, GL_HEADER);
        put_kind(h, GL_KIND_DATA, rank, length);
        h[GL_AT_MAGNITUDE] = 255, h[GL_AT_ELEMENT_TYPE] = GL_TYPE_FLOAT32 | GL_SUM << 4;
        put16(h + GL_AT_JOB, JOB), put64(h + GL_AT_TOKEN, TOKEN), put32(h + GL_AT_STEP, l->step);
        put32(h + GL_AT_MESSAGE, (l->step - 1) * l->stride + rank);
        put16(h + GL_AT_SLICE, (uint16_t)slice), put16(h + GL_AT_SLICES, (uint16_t)l->slices);
        if (slice + 1 == l->slices) h[GL_AT_FLAGS] = GL_FLAG_END;
        memcpy(h + GL_HEADER, (const uint8_t *)l->in + at, length);
        h += GL_HEADER + length;
    }
    const uint64_t begun = ns();
    receive_train(l->engine, l->buffer, (uint32_t)(h - l->buffer), GL_HEADER + l->slice_bytes, false, count > 8, l->now);
    l->buffer = buffer_exchange(l->buffers, l->buffer);
    if (timed) l->figures.received_ns += since(begun, l->clock), l->figures.received += count;
}

static int completed(gl_engine *e) {
    int found = 0;
    for (gl_event *event; (event = gl_next_event(e)); gl_event_free(event)) found |= event->kind == GL_EVENT_COMPLETED;
    return found;
}

/* As in core_load.c. */
int core_load_run(core_load *l, int timed, core_figures *figures) {
    memset(l->out, 0, l->elements * sizeof(float));
    l->figures = *figures;
    l->step++;
    for (unsigned rank = 1; rank < l->ranks; rank++) l->peers[rank].missing = l->slices;
    const gl_submission s = {
        .step = l->step, .collective = GL_ALL_REDUCE, .algorithm = GL_DIRECT, .element_type = GL_TYPE_FLOAT32,
        .reduction = GL_SUM, .elements = l->elements, .in = (const uint8_t *)l->in, .out = (uint8_t *)l->out, .shares = l->shares};
    const uint64_t begun = ns();
    if (gl_submit(l->engine, &s, l->now)) return -1;
    if (timed) l->figures.control_ns += since(begun, l->clock);
    for (uint32_t first = 0; first < l->slices; first += l->train)
        for (unsigned rank = 1; rank < l->ranks; rank++) {
            contribute(l, rank, first, timed);
            l->now += l->train * (GL_HEADER + l->slice_bytes) / RATE; /* the link is full */
            while (send_some(l, timed)) {}
        }
    if (!completed(l->engine)) return -1;
    for (unsigned steps = MOST; !gl_engine_idle(l->engine);) {
        if (send_some(l, timed)) continue;
        if (!--steps) return -1;
        l->now += STEP;
    }
    for (uint32_t i = 0; i < l->elements; i++) l->figures.wrong += l->out[i] != (float)(i % 1021) * (float)l->ranks;
    *figures = l->figures;
    return 0;
}
