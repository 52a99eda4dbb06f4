/* SPDX-License-Identifier: Apache-2.0
 * An engine among as many ranks as it is told, which owns all of an all-reduce: what the others send is made here, and comes in
 * a random order. Results are exact, in rank order, and go to each; who is waited for, late or wrong is named. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/sender.h"
#include "engine/engine.h"

enum { SLICES = 2, SLICE_BYTES = 64, FLOATS = SLICE_BYTES / 4, ELEMENTS = SLICES * FLOATS, JOB = 5, TOKEN = 9, BASE = -3,
       TICK = 10, MOST = 100000,
       STEPS = GL_LATE_STEPS + 2 };

static unsigned ranks, own;
static uint64_t now = 1000000;
static gl_engine *engine;
static float in[ELEMENTS], out[ELEMENTS];

static void require(int holds, const char *what) {
    if (!holds) fprintf(stderr, "%u ranks: %s\n", ranks, what), exit(1);
}

static unsigned stride(void) {
    unsigned power = 1;
    while (power < ranks) power *= 2;
    return power;
}

static float value_of(unsigned rank, unsigned i) { return (float)(rank * 31 + i) * 0.1f; }

static void put_common(uint8_t *h, unsigned kind, unsigned source, uint16_t length) {
    h[0] = (uint8_t)(GL_VERSION << 4 | kind);
    put_sender(h, 0, source);
    put16(h + GL_AT_LENGTH, length);
}

/* A slice of a rank's contribution to a step, which is its message of that number. */
static void contribute(unsigned rank, uint32_t step, unsigned slice, unsigned slices) {
    uint8_t h[GL_HEADER + SLICE_BYTES] = {0};
    put_common(h, GL_KIND_DATA, rank, SLICE_BYTES);
    put16(h + GL_AT_JOB, JOB), put64(h + GL_AT_TOKEN, TOKEN), put32(h + GL_AT_STEP, step);
    h[GL_AT_ELEMENT_TYPE] = GL_TYPE_FLOAT32 | GL_SUM << 4;
    if (slice + 1 == slices) h[GL_AT_FLAGS] = GL_FLAG_END;
    put32(h + GL_AT_MESSAGE, (uint32_t)BASE + (step - 1) * stride() + rank);
    put16(h + GL_AT_SLICE, (uint16_t)slice), put16(h + GL_AT_SLICES, (uint16_t)slices);
    for (unsigned i = 0; i < FLOATS; i++) {
        const float value = value_of(rank, slice * FLOATS + i);
        memcpy(h + GL_HEADER + 4 * i, &value, 4);
    }
    gl_receive(engine, h, sizeof h, 0, now);
}

static void submit(uint32_t step) {
    uint32_t *shares = malloc((ranks + 1) * sizeof *shares);
    for (unsigned k = 0; k <= ranks; k++) shares[k] = k > own;
    const gl_submission s = {
        .step = step, .collective = GL_ALL_REDUCE, .algorithm = GL_DIRECT, .element_type = GL_TYPE_FLOAT32, .reduction = GL_SUM,
        .elements = ELEMENTS, .in = (const uint8_t *)in, .out = (uint8_t *)out, .shares = shares};
    require(!gl_submit(engine, &s, now), "a submission is refused");
    free(shares);
}

/* Of that kind, so many since it was last asked; the source of the last one. */
static unsigned events(uint32_t kind, unsigned *source) {
    unsigned found = 0;
    for (gl_event *event; (event = gl_next_event(engine)); gl_event_free(event)) {
        require(event->kind == kind, "another event is told");
        *source = event->source, found++;
    }
    return found;
}

static uint64_t bad_sources(void) { return gl_engine_statistics(engine)->bad_source; }

/* Who is waited for is one rank, the last; it came so much later than the others. */
static void contributions_come(uint32_t step, uint64_t late) {
    const unsigned count = (ranks - 1) * SLICES, last = own == ranks - 1 ? ranks - 2 : ranks - 1;
    unsigned *order = malloc(count * sizeof *order), n = 0;
    for (unsigned rank = 0; rank < ranks; rank++)
        for (unsigned slice = 0; rank != own && rank != last && slice < SLICES; slice++) order[n++] = rank * SLICES + slice;
    for (unsigned i = n; i-- > 1;) {
        const unsigned k = (unsigned)rand() % (i + 1), other = order[k];
        order[k] = order[i], order[i] = other;
    }
    for (unsigned i = 0; i < n; i++) contribute(order[i] / SLICES, step, order[i] % SLICES, SLICES);
    free(order);
    gl_waiting waiting;
    require(gl_oldest(engine, now, &waiting), "nothing is in flight");
    for (unsigned rank = 0; rank < GL_MAX_RANKS; rank++)
        require(test_bit(waiting.missing, rank) == (rank == last), "it is another rank that is waited for");
    now += late;
    for (unsigned slice = 0; slice < SLICES; slice++) contribute(last, step, slice, SLICES);
    require(gl_heard(engine, (uint16_t)last) == now, "a rank was heard at another time");
    gl_lateness lateness;
    require(!gl_engine_lateness(engine, (uint16_t)last, &lateness), "nothing is known of when a rank came");
    /* Of two, the other one is the median. */
    require(lateness.steps && lateness.late[0] == late, "a rank was late by another time");
    gl_left_out left;
    require(!gl_engine_left_out(engine, (uint16_t)last, &left) && !left.steps, "a rank was left out, which none may be");
}

static void check_result(const float *result) {
    for (unsigned i = 0; i < ELEMENTS; i++) {
        float sum = value_of(0, i);
        for (unsigned rank = 1; rank < ranks; rank++) sum += value_of(rank, i);
        require(result[i] == sum, "a result is not the exact sum in rank order");
    }
}

static void answer(const uint8_t *data, unsigned rank) {
    uint8_t h[GL_HEADER + 1];
    memcpy(h, data, GL_HEADER);
    put_common(h, GL_KIND_STOP, rank, 1);
    h[GL_AT_FLAGS] = GL_FLAG_PULL;
    h[GL_HEADER] = (1 << SLICES) - 1;
    gl_receive(engine, h, sizeof h, 0, now);
}

/* Each rank gets the result, as a message of its own, and answers. */
static void results_go(void) {
    float (*got)[ELEMENTS] = calloc(ranks, sizeof *got);
    unsigned *slices = calloc(ranks, sizeof *slices);
    gl_batch batch;
    for (unsigned turns = 0; !gl_engine_idle(engine); turns++) {
        require(turns < MOST, "results do not end");
        if (!gl_transmit(engine, &batch, now)) now += TICK;
        for (int i = 0, n = 0; n < batch.datagrams; n++) {
            const uint8_t *h = batch.iov[i].iov_base, *payload = h + GL_HEADER;
            if (batch.pieces[n] > 1) payload = batch.iov[i + 1].iov_base;
            i += batch.pieces[n];
            if ((h[0] & 15) != GL_KIND_DATA) continue;
            require(get_source(h) == own && batch.to < ranks && batch.to != own, "a result has a wrong sender, or receiver");
            memcpy((uint8_t *)got[batch.to] + get16(h + GL_AT_SLICE) * SLICE_BYTES, payload, SLICE_BYTES);
            if (++slices[batch.to] == SLICES) answer(h, batch.to);
        }
    }
    for (unsigned rank = 0; rank < ranks; rank++) {
        require(slices[rank] == (rank == own ? 0 : SLICES), "a rank gets too much, or too little");
        if (rank != own) check_result(got[rank]);
    }
    free(got), free(slices);
}

int main(int argc, char **argv) {
    require(argc == 2, "say how many ranks");
    ranks = (unsigned)atoi(argv[1]), own = ranks * 2 / 3;
    const gl_config config = {
        .job = JOB, .rank = (uint16_t)own, .workers = (uint16_t)ranks, .slice_bytes = SLICE_BYTES, .token = TOKEN,
        .message_base = (uint32_t)BASE, .window = 64, .rate = 10000000000, .buffer = 1000000, .memory = 1 << 24};
    srand(ranks);
    engine = gl_engine_new(&config);
    if (ranks > GL_MAX_RANKS) return engine ? 1 : 0;
    require(engine != NULL, "there is no engine");
    for (unsigned rank = 0; rank < ranks; rank++) gl_engine_drop(engine, (uint16_t)rank); /* nothing has come of them */
    gl_engine_free(engine);
    require((engine = gl_engine_new(&config)) != NULL, "there is no engine");
    for (unsigned i = 0; i < ELEMENTS; i++) in[i] = value_of(own, i);
    unsigned source, told = 0;
    for (uint32_t step = 1; step <= STEPS; step++) {
        memset(out, 0, sizeof out);
        submit(step);
        contributions_come(step, 500);
        require(events(GL_EVENT_COMPLETED, &source) == 1, "a step does not end");
        check_result(out);
        results_go();
    }
    /* Whoever is no rank of the job, or this one, is refused. */
    const uint64_t before = bad_sources();
    for (unsigned rank = ranks; rank < GL_MAX_RANKS; rank++) contribute(rank, STEPS + 1, 0, SLICES), told++;
    contribute(own, STEPS + 1, 0, SLICES);
    require(bad_sources() == before + told + 1, "a rank that there is not is heard");
    submit(STEPS + 1);
    for (unsigned rank = 0; rank < ranks; rank++) {
        if (rank == own) continue;
        contribute(rank, STEPS + 1, 0, SLICES + 1), contribute(rank, STEPS + 1, 1, SLICES + 1);
        require(events(GL_EVENT_MISMATCH, &source) == 1 && source == rank, "who disagrees is not told once, by its number");
    }
    for (unsigned rank = 0; rank < ranks; rank++) {
        if (rank != own) gl_engine_drop(engine, (uint16_t)rank);
        contribute(rank, STEPS + 2, 0, SLICES);
    }
    require(bad_sources() == before + told + 1 + ranks, "a rank that is dead is heard");
    gl_engine_free(engine);
    return 0;
}
