/* SPDX-License-Identifier: Apache-2.0
 * A tensor that a switch sums, step after step, and the switch's slots. Gradients are small whole numbers, so that every
 * result is exact, by the switch and by hosts. With a loss budget slices may be summed without some workers; then all ranks must
 * have the same, and nobody may be missing more often than its budget lets it. The switch may forget everything; then, or just
 * so, all halt, and the step that it owes is done again. */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/sender.h"
#include "world.h"

enum { WINDOW = 4, SLOTS = 16, PARTS = 2, MOST_SUMMED = 12, MOST_ELEMENTS = 1000, WIRE_TENSOR = SUMMED_TENSOR * 16 };

typedef struct {
    uint32_t generation, number, members;
    bool finished;
    uint8_t word[GL_SUM_WORD];
} sum_slot;

typedef struct {
    uint32_t step;             /* that has begun */
    unsigned complete;         /* its partitions, by bit */
    float *in[PARTS], *out[PARTS];
} summing_rank;

static sum_slot slots[SLOTS];
static summing_rank ranks[MOST_RANKS];
static uint64_t elements[PARTS];
static uint32_t generation, of_step[MOST_SUMMED + 1];
static uint32_t push_loss, missing[MOST_SUMMED + 1][PARTS][MOST_RANKS]; /* slices that a worker is left out of */
static float agreed[MOST_SUMMED + 1][PARTS][MOST_ELEMENTS];
static bool is_agreed[MOST_SUMMED + 1][PARTS];
static uint8_t epoch;
static unsigned steps_at_least, losing; /* every so many contributions one is lost when it is first sent; 0: none */
static unsigned taken;
static bool open;

static float value_of(unsigned rank, uint32_t step, uint64_t i) { return (float)(1 + (rank * 5 + i + step * 3) % 3); }

/* ---- The switch ---- */

static void add(uint8_t *to, const uint8_t *from) {
    unsigned carry = 0;
    for (int i = GL_SUM_WORD; i--; carry >>= 8) to[i] = (uint8_t)(carry += to[i] + from[i]);
}

void summed_forget(void) {
    memset(slots, 0, sizeof slots);
    if (!++epoch) epoch++;
}

/* Of a slice that has just been finished. */
static void count_missing(const uint8_t *bytes, uint32_t lacks) {
    const uint32_t step = get32(bytes + GL_AT_STEP), k = get16(bytes + GL_AT_TENSOR) - WIRE_TENSOR;
    for (unsigned rank = 0; fuzz_world.honest && rank < fuzz_world.workers; rank++) {
        missing[step][k][rank] += lacks >> rank & 1;
        const uint32_t budget = (uint32_t)((uint64_t)push_loss * get16(bytes + GL_AT_SLICES) / 1000000);
        fuzz_require(missing[step][k][rank] <= budget, "a worker is left out more often than its budget lets it");
    }
}

void summed_take(const uint8_t *bytes, uint32_t length) {
    uint8_t result[GL_HEADER + GL_SUM_BYTES + GL_SUM_WORD];
    if (!open || length != sizeof result || (bytes[GL_AT_FLAGS] & (GL_FLAG_SUM | GL_FLAG_PULL)) != GL_FLAG_SUM) return;
    const uint8_t *sum = bytes + GL_HEADER, *word = sum + GL_SUM_BYTES;
    const uint32_t source = get_source(bytes), all = (1u << fuzz_world.workers) - 1;
    const uint8_t its = sum[GL_SUM_AT_EPOCH];
    if (source >= fuzz_world.workers || (its && its != epoch)) return;
    if ((bytes[0] & 15) == GL_KIND_DATA && losing && ++taken % losing == 0) return;
    sum_slot *s = &slots[get16(sum + GL_SUM_AT_SLOT) % SLOTS];
    const uint32_t new_generation = get32(sum + GL_SUM_AT_GENERATION), number = get32(bytes + GL_AT_MESSAGE);
    const bool same = new_generation == s->generation;
    const int32_t age = (int32_t)(same ? number - s->number : new_generation - s->generation);
    if (s->members && age < 0) return;
    if (!s->members || age > 0) *s = (sum_slot){.generation = new_generation, .number = number};
    const bool answers = s->finished;
    if (!answers && !(s->members >> source & 1)) add(s->word, word), s->members |= 1u << source;
    const uint32_t may_miss = its ? get32(sum + GL_SUM_AT_MEMBERS) : 0;
    if ((s->members | may_miss) != all && !answers) return;
    if (!answers) s->finished = true, count_missing(bytes, all & ~s->members);
    memcpy(result, bytes, sizeof result);
    result[GL_AT_FLAGS] |= GL_FLAG_PULL;
    result[GL_HEADER + GL_SUM_AT_EPOCH] = epoch;
    put32(result + GL_HEADER + GL_SUM_AT_MEMBERS, s->members);
    memcpy(result + GL_HEADER + GL_SUM_BYTES, s->word, GL_SUM_WORD);
    for (unsigned to = 0; to < fuzz_world.workers; to++)
        if (!answers || to == source) network_push(to, result, sizeof result);
}

/* ---- The workers ---- */

void summed_begin(void) {
    const gl_sum_stream like = {.tensor = SUMMED_TENSOR, .element_type = GL_TYPE_FLOAT32, .count = PARTS, .elements = elements};
    summed_forget();
    memset(ranks, 0, sizeof ranks);
    memset(missing, 0, sizeof missing), memset(is_agreed, 0, sizeof is_agreed);
    generation = FIRST_GENERATION, taken = 0;
    push_loss = fuzz_world.loss_count ? fuzz_world.losses[0].push : 0;
    steps_at_least = fuzz_below(5), losing = fuzz_below(12);
    if (push_loss == 1000000) push_loss--; /* no budget is as large as a message */
    for (unsigned k = 0; k < PARTS; k++) elements[k] = 1 + 4 * fuzz_number() % MOST_ELEMENTS;
    open = !fuzz_world.servers;
    for (unsigned rank = 0; rank < fuzz_world.workers; rank++)
        if (gl_engine_sums_open(fuzz_world.engines[rank], &like)) open = false;
}

static bool is_through(const summing_rank *r) { return r->complete == (1u << PARTS) - 1 || !r->step; }

static void clear(summing_rank *r) {
    for (unsigned k = 0; k < PARTS; k++) free(r->in[k]), free(r->out[k]), r->in[k] = r->out[k] = NULL;
}

void summed_submit(unsigned rank) {
    summing_rank *r = &ranks[rank];
    if (!open || !is_through(r) || r->step == MOST_SUMMED) return;
    clear(r);
    r->complete = 0, r->step++;
    bool known = false;
    for (unsigned other = 0; other < fuzz_world.workers; other++) known |= other != rank && ranks[other].step >= r->step;
    if (!known) of_step[r->step] = generation;
    for (unsigned k = 0; k < PARTS; k++) {
        const size_t bytes = elements[k] * sizeof(float);
        r->in[k] = malloc(bytes), r->out[k] = calloc(1, bytes);
        for (uint64_t i = 0; i < elements[k]; i++) r->in[k][i] = value_of(rank, r->step, i);
        const gl_submission s = {.step = r->step, .tensor = (uint16_t)(WIRE_TENSOR + k), .collective = GL_ALL_REDUCE,
                                 .algorithm = GL_DIRECT, .element_type = GL_TYPE_FLOAT32, .reduction = GL_SUM,
                                 .push_loss = push_loss, .elements = elements[k], .in = (uint8_t *)r->in[k], .out = (uint8_t *)r->out[k],
                                 .generation = of_step[r->step]};
        const int refused = gl_submit(fuzz_world.engines[rank], &s, fuzz_world.now);
        fuzz_require(!refused || !fuzz_world.honest, "a sound step is refused");
        if (refused) r->complete |= 1u << k;
    }
}

void summed_event(unsigned rank, const gl_event *event) {
    summing_rank *r = &ranks[rank];
    const unsigned k = event->tensor - WIRE_TENSOR;
    fuzz_require(!fuzz_world.honest || event->kind != GL_EVENT_MISMATCH, "ranks that agree are told that they don't");
    fuzz_require(!fuzz_world.honest || event->kind != GL_EVENT_OVER_BUDGET, "a budget is spent twice");
    if (event->kind != GL_EVENT_COMPLETED) return;
    fuzz_require(rank < fuzz_world.workers && k < PARTS && event->step == r->step && !(r->complete >> k & 1),
                 "what nobody called is complete");
    r->complete |= 1u << k;
    if (!fuzz_world.honest) return;
    float *all = agreed[r->step][k];
    if (!is_agreed[r->step][k]) memcpy(all, r->out[k], elements[k] * sizeof *all);
    is_agreed[r->step][k] = true;
    fuzz_require(!memcmp(all, r->out[k], elements[k] * sizeof *all), "two ranks have different sums");
    for (uint64_t i = 0; !push_loss && i < elements[k]; i++) {
        float sum = 0;
        for (unsigned other = 0; other < fuzz_world.workers; other++) sum += value_of(other, r->step, i);
        fuzz_require(r->out[k][i] == sum, "a sum is not that of what was given");
    }
}

static uint32_t latest(void) {
    uint32_t step = steps_at_least;
    for (unsigned rank = 0; rank < fuzz_world.workers; rank++) step = ranks[rank].step > step ? ranks[rank].step : step;
    return step;
}

void summed_submit_all(void) {
    for (unsigned rank = 0; rank < fuzz_world.workers; rank++)
        if (ranks[rank].step < latest()) summed_submit(rank);
}

bool summed_complete(void) {
    bool all = true;
    for (unsigned rank = 0; rank < fuzz_world.workers && open; rank++)
        all &= ranks[rank].step == latest() && is_through(&ranks[rank]);
    return all;
}

/* ---- When the switch fails ---- */

void summed_halt(bool gives_up) {
    gl_sum_state state[MOST_RANKS];
    uint32_t least = UINT32_MAX;
    bool owed = true;
    for (unsigned rank = 0; rank < fuzz_world.workers && open; rank++) {
        gl_engine_sums_halt(fuzz_world.engines[rank]);
        fuzz_require(gl_engine_sums_state(fuzz_world.engines[rank], &state[rank], 1) == 1, "a stream has no state");
        least = state[rank].completed < least ? state[rank].completed : least;
    }
    for (unsigned rank = 0; rank < fuzz_world.workers && open; rank++) owed &= state[rank].begun > least;
    const gl_sum_rerun again = {SUMMED_TENSOR, fuzz_world.honest ? least + 1 : least + fuzz_below(3)};
    for (unsigned rank = 0; rank < fuzz_world.workers && open; rank++) {
        gl_engine *e = fuzz_world.engines[rank];
        const int refused = gl_engine_sums_resume(e, generation + gives_up, !gives_up, &again, gives_up && owed, fuzz_world.now);
        fuzz_require(!refused || !fuzz_world.honest, "what all have begun can't be done again");
        if (refused) gl_engine_sums_resume(e, generation + gives_up, !gives_up, NULL, 0, fuzz_world.now);
    }
    if (gives_up) generation += 2;
}

void summed_end(void) {
    for (unsigned rank = 0; rank < MOST_RANKS; rank++) clear(&ranks[rank]);
}
