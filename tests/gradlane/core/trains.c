/* SPDX-License-Identifier: Apache-2.0
 * Engines that get datagrams in trains, as the kernel merges them, in buffers that they hold: some are lost, come twice or late,
 * and among them lie some that are forged. Results are exact, and what was forged is counted. There are so few buffers that at
 * times all are held. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "engine/receiving.h"

enum { RANKS = 4, ELEMENTS = 30000, SLICE = 256, STEPS = 24, BUFFERS = 6, LATE = 512, TICK = 50 };
enum { TOKENS, JOBS, RANGES, LENGTHS, BUDGETS, VERSIONS, FORGERIES };

typedef struct {
    unsigned to;
    uint32_t bytes, segment;
    uint8_t *datagrams;
} train;

static gl_engine *engines[RANKS];
static buffers *pool;
static uint8_t *taken;
static float in[RANKS][ELEMENTS], out[RANKS][ELEMENTS];
static train late[LATE];
static unsigned late_count;
static uint64_t now = 1000000, forged[RANKS][FORGERIES], exchanged, all_held, crowded, trains_crowded;

static void require(bool holds, const char *what, unsigned step) {
    if (!holds) fprintf(stderr, "step %u: %s\n", step, what), exit(1);
}

static bool chance(unsigned of) { return rand() % of == 0; }

/* What was a slice is none that may be taken. */
static void forge(uint8_t *h, unsigned to) {
    const unsigned how = (unsigned)rand() % FORGERIES;
    forged[to][how]++;
    if (how == TOKENS) h[GL_AT_TOKEN + 7] ^= 1;
    if (how == JOBS) h[GL_AT_JOB + 1] ^= 1;
    if (how == RANGES) put16(h + GL_AT_SLICE, get16(h + GL_AT_SLICES));
    if (how == LENGTHS) put16(h + GL_AT_LENGTH, (uint16_t)(get16(h + GL_AT_LENGTH) - (chance(2) ? 1 : 4)));
    if (how == BUDGETS) put16(h + GL_AT_BUDGET, 1);
    if (how == VERSIONS) h[0] += 16;
}

static void hand_over(const train *t) {
    memcpy(taken, t->datagrams, t->bytes);
    const gl_statistics *s = gl_engine_statistics(engines[t->to]);
    const bool spare = buffers_spare(pool), held = !chance(8);
    const uint64_t copied = s->slices_copied;
    all_held += !spare;
    receive_train(engines[t->to], taken, t->bytes, t->segment, false, held, now);
    require(s->slices_copied == copied || (held && !spare), "what may be held, or is never to be, counts as copied", 0);
    crowded += s->slices_copied - copied, trains_crowded += held && !spare && s->slices_copied > copied;
    uint8_t *next = buffer_exchange(pool, taken);
    exchanged += next != taken;
    taken = next;
    /* Whoever still reads what it does not hold reads this. */
    memset(taken, 0xa5, BUFFER_BYTES);
    free(t->datagrams);
}

static void pass_on(const gl_batch *b) {
    train t = {.to = b->to, .segment = b->segment, .datagrams = malloc(2 * BUFFER_BYTES)};
    bool shorter = false;
    for (int i = 0, n = 0; n < b->datagrams; n++) {
        uint8_t *h = t.datagrams + t.bytes;
        uint32_t bytes = 0;
        for (int k = 0; k < b->pieces[n]; k++, i++)
            memcpy(h + bytes, b->iov[i].iov_base, b->iov[i].iov_len), bytes += (uint32_t)b->iov[i].iov_len;
        const bool slice = (h[0] & 15) == GL_KIND_DATA, room = t.bytes + 3 * bytes < BUFFER_BYTES && bytes == b->segment;
        if (slice && chance(25)) continue; /* lost */
        t.bytes += bytes, shorter = bytes < b->segment;
        if (slice && room && chance(20)) memcpy(h + bytes, h, bytes), t.bytes += bytes;
        if (slice && room && chance(20)) {
            memcpy(t.datagrams + t.bytes, h, bytes);
            forge(t.datagrams + t.bytes, t.to);
            t.bytes += bytes;
        }
    }
    require(!shorter || t.bytes % b->segment, "a shorter datagram is not the last", 0);
    if (!t.bytes)
        free(t.datagrams);
    else if (late_count < LATE && chance(4))
        late[late_count++] = t;
    else
        hand_over(&t);
}

static void submit(uint32_t step) {
    for (unsigned rank = 0; rank < RANKS; rank++) {
        for (unsigned i = 0; i < ELEMENTS; i++) in[rank][i] = (float)((i * 7 + rank * 13 + step) % 1000);
        const gl_submission s = {
            .step = step, .collective = GL_ALL_REDUCE, .algorithm = step % 2 ? GL_DIRECT : GL_RING,
            .element_type = GL_TYPE_FLOAT32, .reduction = GL_SUM, .elements = ELEMENTS, .in = (const uint8_t *)in[rank],
            .out = (uint8_t *)out[rank]};
        require(!gl_submit(engines[rank], &s, now), "refused", step);
    }
}

static bool completed(gl_engine *e) {
    bool found = false;
    for (gl_event *event; (event = gl_next_event(e)); gl_event_free(event)) found |= event->kind == GL_EVENT_COMPLETED;
    return found;
}

static void reduce(uint32_t step) {
    static gl_batch batch;
    unsigned open = RANKS;
    submit(step);
    for (unsigned turns = 0; open; turns++) {
        require(turns < 1000000, "it does not end", step);
        for (unsigned rank = 0; rank < RANKS; rank++)
            for (unsigned n = 0; n < 4 && gl_transmit(engines[rank], &batch, now); n++) pass_on(&batch);
        while (late_count && chance(2)) {
            const unsigned which = (unsigned)rand() % late_count;
            const train t = late[which];
            late[which] = late[--late_count];
            hand_over(&t);
        }
        for (unsigned rank = 0; rank < RANKS; rank++) open -= completed(engines[rank]);
        now += TICK;
    }
    for (unsigned rank = 0; rank < RANKS; rank++)
        for (unsigned i = 0; i < ELEMENTS; i++) {
            float sum = 0;
            for (unsigned other = 0; other < RANKS; other++) sum += in[other][i];
            require(out[rank][i] == sum, "a result is wrong", step);
        }
}

int main(void) {
    srand(1);
    pool = buffers_new(BUFFERS);
    taken = buffer_take(pool);
    for (unsigned rank = 0; rank < RANKS; rank++) {
        const gl_config config = {
            .job = 2, .rank = (uint16_t)rank, .workers = RANKS, .slice_bytes = SLICE, .token = 0x0102030405060708, .window = 64,
            .rate = 10000000000, .buffer = 1000000, .memory = 1 << 24};
        engines[rank] = gl_engine_new(&config);
        receive_into(engines[rank], pool);
    }
    for (uint32_t step = 1; step <= STEPS; step++) reduce(step);
    for (unsigned rank = 0; rank < RANKS; rank++) {
        const gl_statistics *s = gl_engine_statistics(engines[rank]);
        require(s->bad_token == forged[rank][TOKENS] && s->bad_job == forged[rank][JOBS] &&
                s->bad_range == forged[rank][RANGES] && s->bad_length == forged[rank][LENGTHS] &&
                s->bad_budget == forged[rank][BUDGETS] && s->bad_header == forged[rank][VERSIONS], "what was forged is not counted as such", STEPS);
        require(!s->budget_violations && !s->bad_message, "something was taken wrongly", STEPS);
    }
    require(exchanged > 100, "nothing was held", STEPS);
    require(all_held > 10, "there were always buffers to spare", STEPS);
    require(crowded > 100 && crowded > trains_crowded, "what was copied is not counted, slice by slice", STEPS);
    while (late_count) free(late[--late_count].datagrams);
    for (unsigned rank = 0; rank < RANKS; rank++) gl_engine_leave(engines[rank]), gl_engine_free(engines[rank]);
    /* All that was held is released: one is this program's. */
    uint8_t *all[BUFFERS] = {taken};
    for (unsigned i = 1; i < BUFFERS; i++) require((all[i] = buffer_take(pool)) != NULL, "a buffer is still held", STEPS);
    require(!buffer_take(pool), "there are too many buffers", STEPS);
    /* The cache has what was used last. */
    buffer_release(pool, all[3]), buffer_release(pool, all[1]);
    require(buffer_take(pool) == all[1], "another one is taken than was released last", STEPS);
    buffer_release(pool, all[2]);
    require(buffer_take(pool) == all[2] && buffer_take(pool) == all[3], "what was there longer is taken first", STEPS);
    buffers_leave(pool);
    return 0;
}
