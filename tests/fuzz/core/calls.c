/* SPDX-License-Identifier: Apache-2.0
 * The workers' calls: small whole numbers, so that every result is exact, and known without the code under test. */
#include <stdlib.h>
#include <string.h>

#include "arithmetic/elements.h"
#include "arithmetic/types.h"
#include "job/losses.h"
#include "world.h"

enum { UNTOUCHED = 0xa5, MOST_SLICES = 40 };

typedef struct {
    gl_submission is;      /* as all call it */
    uint16_t group[MOST_RANKS];
    uint32_t shares[MOST_RANKS + 1];
    unsigned size;         /* of the group */
    bool pair, shared;     /* shared: `in` is `out` */
    uint16_t *layers;
    uint8_t *magnitudes, *in[MOST_RANKS], *out[MOST_RANKS];
    bool called[MOST_RANKS], complete[MOST_RANKS];
} call;

static call calls[MOST_CALLS];
static unsigned count;

static bool has_blocks_in(unsigned c) { return c == GL_REDUCE_SCATTER || c == GL_ALL_TO_ALL; }
static bool has_blocks_out(unsigned c) { return c == GL_ALL_GATHER || c == GL_ALL_TO_ALL; }

/* A rank's place among those that take part; -1: it does not. */
static int member_of(const call *c, unsigned rank) {
    if (c->pair) return rank == c->group[0] ? 0 : rank == c->group[1] ? 1 : -1;
    if (!c->is.group) return rank < fuzz_world.workers ? (int)rank : -1;
    for (unsigned k = 0; k < c->size; k++)
        if (c->group[k] == rank) return (int)k;
    return -1;
}

static unsigned rank_at(const call *c, unsigned member) { return c->is.group || c->pair ? c->group[member] : member; }

static bool sends(const call *c, unsigned rank) {
    if (c->pair) return rank == c->group[0];
    return c->is.collective != GL_BROADCAST || rank == c->is.root;
}

static bool receives(const call *c, unsigned rank) {
    if (c->pair) return rank == c->group[1];
    return c->is.collective != GL_REDUCE || rank == c->is.root;
}

/* ---- Elements ---- */

static unsigned item_of(const call *c) { return gl_element_bytes(c->is.element_type); }

static double value_of(const call *c, unsigned rank, uint64_t i) {
    return (double)((rank * 7 + i * 3 + (uint64_t)(c - calls)) % 4);
}

static void put_element(const call *c, uint8_t *at, double value) {
    const float small = (float)value;
    switch (c->is.element_type) {
    case GL_TYPE_FLOAT64: memcpy(at, &value, 8); break;
    case GL_TYPE_UINT8:
    case GL_TYPE_INT8: *at = (uint8_t)value; break;
    case GL_TYPE_INT32: memcpy(at, &(int32_t){(int32_t)value}, 4); break;
    case GL_TYPE_INT64: memcpy(at, &(int64_t){(int64_t)value}, 8); break;
    default: store_floats(at, &small, 1, c->is.element_type);
    }
}

static uint64_t distance(const call *c) { return c->is.stride ? c->is.stride : c->is.elements * item_of(c); }

/* Bytes of so many blocks. */
static uint64_t bytes_of(const call *c, unsigned blocks) { return (blocks - 1) * distance(c) + c->is.elements * item_of(c); }

/* Where element `i` of so many blocks is. */
static uint8_t *element(const call *c, uint8_t *memory, uint64_t i) {
    return memory + i / c->is.elements * distance(c) + i % c->is.elements * item_of(c);
}

static double combined(const call *c, uint64_t i) {
    double sum = value_of(c, rank_at(c, 0), i);
    for (unsigned k = 1; k < c->size; k++) {
        const double other = value_of(c, rank_at(c, k), i);
        switch (c->is.reduction) {
        case GL_MIN: sum = other < sum ? other : sum; break;
        case GL_MAX: sum = other > sum ? other : sum; break;
        case GL_PRODUCT: sum *= other; break;
        default: sum += other;
        }
    }
    if (c->is.reduction > GL_MEAN) return sum;
    return c->is.element_type == GL_TYPE_FLOAT64 ? sum / c->size : (double)((float)sum / (float)c->size);
}

/* What a rank's result has at element `i` of block `block`. */
static double expected(const call *c, unsigned rank, unsigned block, uint64_t i) {
    const uint64_t n = c->is.elements, me = (uint64_t)member_of(c, rank);
    switch (c->is.collective) {
    case GL_ALL_REDUCE:
    case GL_REDUCE: return combined(c, i);
    case GL_REDUCE_SCATTER: return combined(c, me * n + i);
    case GL_ALL_GATHER: return value_of(c, rank_at(c, block), i);
    case GL_BROADCAST: return value_of(c, c->is.root, i);
    case GL_ALL_TO_ALL: return value_of(c, rank_at(c, block), me * n + i);
    default: return value_of(c, c->group[0], i);
    }
}

static void check_result(const call *c, unsigned rank) {
    const unsigned blocks = has_blocks_out(c->is.collective) ? c->size : 1;
    for (unsigned block = 0; block < blocks; block++)
        for (uint64_t i = 0; i < c->is.elements; i++) {
            uint8_t right[8];
            put_element(c, right, expected(c, rank, block, i));
            fuzz_require(!memcmp(element(c, c->out[rank], block * c->is.elements + i), right, item_of(c)),
                         "a result without loss is not the exact one");
        }
    for (uint64_t gap = c->is.elements * item_of(c); blocks > 1 && gap < distance(c); gap++)
        fuzz_require(c->out[rank][gap] == UNTOUCHED, "a result is written to where it does not belong");
}

/* ---- Calls ---- */

static void choose_group(call *c) {
    gl_submission *s = &c->is;
    const unsigned mask = fuzz_byte();
    if (s->collective >= GL_SEND) {
        c->pair = true, c->size = 2;
        c->group[0] = (uint16_t)(mask % fuzz_world.workers);
        c->group[1] = (uint16_t)((c->group[0] + 1 + mask / 16 % (fuzz_world.workers - 1)) % fuzz_world.workers);
        return;
    }
    c->size = fuzz_world.workers;
    s->root = (uint16_t)(mask / 16 % fuzz_world.workers);
    if (mask % 16 < 8) return;
    c->size = 0;
    for (unsigned rank = 0; rank < fuzz_world.workers; rank++)
        if (mask >> (rank % 4) & 1 || rank == s->root) c->group[c->size++] = (uint16_t)rank;
    s->group = c->group, s->group_size = (uint16_t)c->size;
}

static void choose_shares(call *c) {
    const unsigned owners = fuzz_world.servers && c->size == fuzz_world.workers ? fuzz_world.servers : c->size;
    if (c->is.collective != GL_ALL_REDUCE || fuzz_below(2)) return;
    for (unsigned k = 0; k < owners; k++) c->shares[k + 1] = c->shares[k] + fuzz_below(4);
    if (c->shares[owners]) c->is.shares = c->shares;
}

static void choose_facts(call *c) {
    gl_submission *s = &c->is;
    const uint64_t bytes = s->elements * item_of(c);
    const uint32_t slices = (uint32_t)((bytes + fuzz_world.slice_bytes - 1) / fuzz_world.slice_bytes) *
                            (has_blocks_in(s->collective) ? c->size : 1);
    const unsigned how = fuzz_byte(), class = how % 3;
    c->layers = malloc(slices * sizeof *c->layers);
    for (uint32_t i = 0; i < slices; i++) c->layers[i] = (uint16_t)(class * 10 + (how & 16 ? i : slices - i) % 4);
    s->layers = how & 32 || class ? c->layers : NULL;
    c->magnitudes = malloc(slices);
    for (uint32_t i = 0; i < slices; i++) c->magnitudes[i] = (uint8_t)(i * 37);
    s->magnitudes = how & 64 ? c->magnitudes : NULL;
    if (how & 128 && class < fuzz_world.loss_count)
        s->push_loss = fuzz_world.losses[class].push, s->pull_loss = fuzz_world.losses[class].pull;
    c->shared = !s->push_loss && !s->pull_loss && s->collective == GL_ALL_REDUCE && fuzz_below(2);
}

static bool is_float(unsigned type) { return type <= GL_TYPE_FLOAT64; }

static call *new_call(void) {
    call *c = &calls[count];
    memset(c, 0, sizeof *c);
    gl_submission *s = &c->is;
    s->step = 1 + count / 3, s->tensor = (uint16_t)(count % 3);
    s->collective = (uint8_t)(GL_ALL_REDUCE + fuzz_byte() % 12);
    if (s->collective > GL_RECEIVE) s->collective = GL_ALL_REDUCE;
    if (s->collective == GL_RECEIVE) s->collective = GL_SEND;
    s->algorithm = (uint8_t)(GL_DIRECT + fuzz_below(2));
    s->element_type = (uint8_t)(GL_TYPE_FLOAT32 + fuzz_below(8));
    s->reduction = (uint8_t)(GL_MEAN_OF_ARRIVED + fuzz_below(6));
    if (s->reduction <= GL_MEAN && !is_float(s->element_type)) s->reduction = GL_SUM;
    choose_group(c);
    choose_shares(c);
    const unsigned of_slice = fuzz_world.slice_bytes / item_of(c);
    s->elements = 1 + fuzz_number() % (MOST_SLICES * of_slice);
    s->stride = fuzz_below(4) == 3 ? (s->elements + 3) * item_of(c) : 0;
    choose_facts(c);
    count++;
    return c;
}

static void submit_at(call *c, unsigned rank) {
    gl_submission s = c->is;
    const unsigned blocks = has_blocks_in(s.collective) ? c->size : 1;
    if (c->pair) s.collective = sends(c, rank) ? GL_SEND : GL_RECEIVE, s.root = c->group[sends(c, rank)];
    if (sends(c, rank)) {
        c->in[rank] = malloc(bytes_of(c, blocks));
        memset(c->in[rank], UNTOUCHED, bytes_of(c, blocks));
        for (uint64_t i = 0; i < blocks * s.elements; i++) put_element(c, element(c, c->in[rank], i), value_of(c, rank, i));
    }
    if (receives(c, rank)) {
        const uint64_t bytes = bytes_of(c, has_blocks_out(s.collective) ? c->size : 1);
        c->out[rank] = c->shared ? c->in[rank] : malloc(bytes);
        if (!c->shared) memset(c->out[rank], UNTOUCHED, bytes);
    }
    s.in = c->in[rank], s.out = c->out[rank];
    if (!fuzz_world.honest && fuzz_below(8) == 7) {
        /* Somebody has another idea of it: of less, as the memory is what it is. */
        s.elements = 1 + fuzz_number() % s.elements;
        s.algorithm ^= fuzz_byte() & 3;
        s.reduction = (uint8_t)(s.reduction + fuzz_below(2));
        s.root = (uint16_t)(fuzz_below(8) ? s.root : fuzz_byte());
        s.shares = fuzz_below(2) ? s.shares : NULL;
    }
    c->called[rank] = true;
    const int refused = gl_submit(fuzz_world.engines[rank], &s, fuzz_world.now);
    fuzz_require(!refused || !fuzz_world.honest, "a sound submission is refused");
    if (refused) c->complete[rank] = true;
}

void calls_submit(void) {
    const unsigned which = fuzz_byte(), rank = fuzz_below(fuzz_world.workers);
    call *c = which % 4 == 0 || !count ? (count < MOST_CALLS ? new_call() : NULL) : &calls[which % count];
    if (c && member_of(c, rank) >= 0 && !c->called[rank]) submit_at(c, rank);
}

void calls_submit_all(void) {
    for (call *c = calls; c < calls + count; c++)
        for (unsigned rank = 0; rank < fuzz_world.workers; rank++)
            if (member_of(c, rank) >= 0 && !c->called[rank]) submit_at(c, rank);
}

void calls_event(unsigned rank, const gl_event *event) {
    if (event->tensor / 16 == SUMMED_TENSOR) {
        summed_event(rank, event);
        return;
    }
    fuzz_require(!fuzz_world.honest || event->kind != GL_EVENT_MISMATCH, "ranks that agree are told that they don't");
    fuzz_require(event->kind != GL_EVENT_FAILED, "memory is out");
    if (event->kind == GL_EVENT_LOST || event->kind == GL_EVENT_MISSED) {
        uint32_t lost = 0;
        for (uint32_t i = 0; i < event->slices; i++) lost += event->lost[i >> 3] >> (i & 7) & 1;
        fuzz_require(lost && lost == event->lost_slices, "a loss is told wrongly");
    }
    if (event->kind != GL_EVENT_COMPLETED) return;
    call *c = NULL;
    for (call *k = calls; k < calls + count; k++)
        if (k->is.step == event->step && k->is.tensor == event->tensor) c = k;
    fuzz_require(c && rank < fuzz_world.workers && c->called[rank] && !c->complete[rank], "what nobody called is complete");
    c->complete[rank] = true;
    if (fuzz_world.honest && receives(c, rank) && !c->is.push_loss && !c->is.pull_loss) check_result(c, rank);
}

bool calls_complete(void) {
    for (const call *c = calls; c < calls + count; c++)
        for (unsigned rank = 0; rank < fuzz_world.workers; rank++)
            if (c->called[rank] && !c->complete[rank]) return false;
    return true;
}

void calls_name(uint32_t *step, uint16_t *tensor) {
    const unsigned which = fuzz_below(MOST_CALLS);
    *step = 1 + which / 3, *tensor = (uint16_t)(which % 3);
}

void calls_begin(void) { count = 0; }

void calls_end(void) {
    for (call *c = calls; c < calls + count; c++) {
        for (unsigned rank = 0; rank < MOST_RANKS; rank++) {
            if (c->out[rank] != c->in[rank]) free(c->out[rank]);
            free(c->in[rank]);
        }
        free(c->layers), free(c->magnitudes);
    }
    count = 0;
}
