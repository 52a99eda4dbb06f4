/* SPDX-License-Identifier: Apache-2.0
 *
 * Contributions to a slice in any order, of which some never come: the result is what they give one after the other in the order
 * of their ranks, and of many those that came without a gap from the first rank on take the room of one. Not so of 16 bits, which
 * are rounded once, at the end, nor of a swap, whose own contribution is there last. */
#include <string.h>

#include "arithmetic/reduce.h"
#include "arithmetic/types.h"
#include "many_ranks.h"
#include "operation/waiting.h"
#include "rx/rx.h"

enum { TRIES = 4000, MOST = 40, FEW = 16, ELEMENTS = 179, SLICE_BYTES = 8 * ELEMENTS };

static const unsigned TYPES[] = {GL_TYPE_FLOAT32, GL_TYPE_FLOAT64, GL_TYPE_INT32, GL_TYPE_UINT8, GL_TYPE_FLOAT16};

typedef struct {
    unsigned type, reduction, from, own_at;
    bool owns;
    _Alignas(8) uint8_t own[SLICE_BYTES], of[MOST][SLICE_BYTES];
    bool came[MOST];
} contributed;

static void fill(uint8_t *to, unsigned type) {
    for (unsigned i = 0; i < ELEMENTS; i++) {
        const int whole = (int)draw(2001) - 1000;
        const double some = whole / 7.0;
        switch (type) {
        case GL_TYPE_FLOAT32: ((float *)to)[i] = (float)some; break;
        case GL_TYPE_FLOAT64: ((double *)to)[i] = some; break;
        case GL_TYPE_INT32: ((int32_t *)to)[i] = whole * 2000000; break;
        case GL_TYPE_UINT8: to[i] = (uint8_t)whole; break;
        default: ((_Float16 *)to)[i] = (_Float16)some;
        }
    }
}

#define COMBINED(x, y) (c->reduction == GL_MIN ? ((y) < (x) ? (y) : (x)) : (x) + (y))

/* By an element's own type, one contribution after the other. */
#define EXPECT(TYPE, SUM) \
    for (unsigned i = 0; i < ELEMENTS; i++) { \
        SUM sum = ((const TYPE *)sources[0])[i]; \
        for (unsigned s = 1; s < count; s++) { \
            const SUM next = ((const TYPE *)sources[s])[i]; \
            sum = COMBINED(sum, next); \
        } \
        if (c->reduction == GL_MEAN_OF_ARRIVED) sum = sum / (SUM)count; \
        ((TYPE *)result)[i] = (TYPE)sum; \
    }

static unsigned expect(const contributed *c, uint8_t *result) {
    const uint8_t *sources[MOST + 1];
    unsigned count = 0;
    for (unsigned k = 0; k <= c->from; k++) {
        if (c->owns && k == c->own_at) sources[count++] = c->own;
        if (k < c->from && c->came[k]) sources[count++] = c->of[k];
    }
    if (!count) return 0;
    switch (c->type) {
    case GL_TYPE_FLOAT32: EXPECT(float, float); break;
    case GL_TYPE_FLOAT64: EXPECT(double, double); break;
    case GL_TYPE_INT32: EXPECT(int32_t, int64_t); break;
    case GL_TYPE_UINT8: EXPECT(uint8_t, uint32_t); break;
    default: EXPECT(_Float16, float);
    }
    return count;
}

/* Slots that those which came may take. */
static unsigned room(const contributed *c, bool swaps) {
    unsigned first = 0, slots = 0;
    const bool adds = c->from > FEW && c->type != GL_TYPE_FLOAT16 && !swaps;
    while (adds && first < c->from && c->came[first]) first++;
    for (unsigned k = first; k < c->from; k++) slots += c->came[k];
    return slots + (first > 0);
}

static void try(job *j, contributed *c) {
    const unsigned bytes = ELEMENTS * gl_element_bytes(c->type);
    plan p = {.encoding = (uint8_t)(c->type | c->reduction << 4)};
    node other = {0};
    node n = {.plan = &p, .slices = 1, .last_length = bytes, .from_count = c->from, .own = c->owns ? c->own : NULL,
              .own_at = c->own_at, .partial = draw(8) ? NULL : &other};
    require(waiting_new(&n), "memory is out");
    unsigned order[MOST];
    for (unsigned k = 0; k < c->from; k++) {
        const unsigned at = draw(4) ? draw(k + 1) : k; /* often in their order, for a while */
        order[k] = order[at], order[at] = k;
    }
    const unsigned come = draw(4) ? c->from : draw(c->from + 1);
    const bool last_waits = come < c->from || draw(2);
    const uint8_t *sources[MOST + 1], *payload = NULL;
    unsigned fresh = 0;
    for (unsigned i = 0; i < come; i++) {
        const unsigned k = order[i];
        c->came[k] = true;
        if (i + 1 == c->from && !last_waits) {
            fresh = k, payload = c->of[k];
            break;
        }
        if (draw(4))
            waiting_put(j, &n, 0, k, c->of[k], bytes, sources);
        else
            waiting_put_kept(j, &n, 0, k, rx_keep(j, c->of[k], bytes), sources);
        require(j->kept == (uint64_t)room(c, n.partial) * SLICE_BYTES && j->statistics.memory_used == j->kept,
                "contributions take another room than they should");
    }
    _Alignas(8) uint8_t expected[SLICE_BYTES], result[SLICE_BYTES];
    unsigned contributors;
    const unsigned found = expect(c, expected), count = contributions(&j->config, &n, 0, fresh, payload, sources, &contributors);
    require(contributors == found && !count == !found, "contributions are counted wrong");
    const unsigned divisor = c->reduction == GL_MEAN_OF_ARRIVED ? contributors : 1;
    if (count) reduce_slice(result, sources, count, c->reduction, divisor, bytes, c->type);
    require(!memcmp(result, expected, count ? bytes : 0), "a result is not that of the contributions in the order of their ranks");
    waiting_drop(j, &n, 0);
    require(!j->kept && !j->statistics.memory_used, "something is kept for ever");
    free(n.waiting), free(n.added);
}

int main(void) {
    job j = {0};
    tx x = {0};
    begin(&j, &x, MOST + 1);
    for (unsigned n = 0; n < TRIES; n++) {
        srand(n);
        static contributed c;
        c = (contributed){.type = TYPES[draw(sizeof TYPES / sizeof *TYPES)], .owns = draw(4),
                          .from = draw(3) ? FEW + 1 + draw(MOST - FEW) : 1 + draw(FEW)};
        const bool is_float = gl_element_is_float(c.type);
        c.reduction = is_float && draw(2) ? GL_MEAN_OF_ARRIVED : draw(2) ? GL_SUM : GL_MIN;
        c.own_at = draw(c.from + 1);
        fill(c.own, c.type);
        for (unsigned k = 0; k < c.from; k++) fill(c.of[k], c.type);
        try(&j, &c);
    }
    tx_free(&x), job_free(&j);
    return 0;
}
