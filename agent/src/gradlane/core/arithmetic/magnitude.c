/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The worth of slices. The loops are over blocks that stay in the first-level cache, in lanes that the compiler turns into
 * vectors.
 */
#include "arithmetic/magnitude.h"

#include <math.h>
#include <stdbool.h>

#include "arithmetic/elements.h"
#include "arithmetic/instructions.h"
#include "arithmetic/types.h"

enum { BLOCK = 512, LANES = 16, BINS = 4096 };

typedef struct {
    float absolute[LANES], squares[LANES];
} lanes;

static void add_worth(const float *restrict values, size_t n, lanes *restrict to) {
    lanes sum = *to; /* in registers */
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            const float value = values[i + k];
            sum.absolute[k] += fabsf(value);
            sum.squares[k] += value * value;
        }
    for (size_t k = 0; i < n; i++, k++) {
        sum.absolute[k] += fabsf(values[i]);
        sum.squares[k] += values[i] * values[i];
    }
    *to = sum;
}

GL_CLONES gl_worth gl_contribute(uint8_t *out, const uint8_t *const *sources, unsigned count, unsigned divisor,
                       const uint8_t *residual, uint64_t elements, unsigned type) {
    const uint32_t item = gl_element_bytes(type);
    const bool changed = count > 1 || residual || out != sources[0];
    const float by = (float)divisor;
    lanes worth = {0};
    for (uint64_t offset = 0; offset < elements; offset += BLOCK) {
        const size_t n = elements - offset < BLOCK ? elements - offset : BLOCK;
        float values[BLOCK], more[BLOCK];
        load_floats(values, sources[0] + offset * item, n, type);
        for (unsigned s = 1; s < count; s++) {
            load_floats(more, sources[s] + offset * item, n, type);
            for (size_t i = 0; i < n; i++) values[i] += more[i];
        }
        if (divisor > 1)
            for (size_t i = 0; i < n; i++) values[i] /= by;
        if (residual) {
            load_floats(more, residual + offset * item, n, type);
            for (size_t i = 0; i < n; i++) values[i] += more[i];
        }
        if (changed) store_floats(out + offset * item, values, n, type);
        add_worth(values, n, &worth);
    }
    float sum = 0;
    double total = 0;
    for (size_t k = 0; k < LANES; k++) sum += worth.absolute[k], total += worth.squares[k];
    return (gl_worth){sum / (float)elements, total};
}

/* Bits of a float that is not negative ascend with its value; NaN and infinity are above all. */
static uint32_t order_of(float mean) {
    uint32_t bits;
    memcpy(&bits, &mean, sizeof bits);
    return bits & 0x7fffffff;
}

GL_CLONES void gl_quantiles(const float *means, uint32_t slices, uint8_t *quantiles) {
    uint32_t counts[BINS] = {0}, least = UINT32_MAX, most = 0;
    for (uint32_t i = 0; i < slices; i++) {
        const uint32_t order = order_of(means[i]);
        if (order < least) least = order;
        if (order > most) most = order;
    }
    const uint64_t span = (uint64_t)most - least + 1;
    for (uint32_t i = 0; i < slices; i++) counts[(uint64_t)(order_of(means[i]) - least) * BINS / span]++;
    uint32_t below = 0;
    uint8_t quantile[BINS];
    for (unsigned bin = 0; bin < BINS; bin++) {
        quantile[bin] = (uint8_t)((uint64_t)(below + counts[bin] / 2) * 256 / slices);
        below += counts[bin];
    }
    for (uint32_t i = 0; i < slices; i++)
        quantiles[i] = quantile[(uint64_t)(order_of(means[i]) - least) * BINS / span];
}
