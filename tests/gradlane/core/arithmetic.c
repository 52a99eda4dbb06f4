/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a digest of what the arithmetic makes of the same numbers, for each type and several lengths: to be compared with
 * that of another CPU.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/convert.h"
#include "arithmetic/magnitude.h"
#include "arithmetic/types.h"
#include "wire.h"

enum { LONGEST = 2000, WIDEST = 4, SOURCES = 3 };

static uint64_t seed = 1;

static uint32_t draw(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

/* Of any exponent from 2^-20 to 2^11, exact in float32. */
static float number(void) {
    const int mantissa = (int)(draw() & 0xffffff) - 0x800000;
    return ldexpf((float)mantissa, (int)(draw() % 32) - 43);
}

static uint64_t digest(uint64_t hash, const void *bytes, size_t n) {
    for (const uint8_t *b = bytes; n--; b++) hash = (hash ^ *b) * 1099511628211u; /* FNV-1a */
    return hash;
}

int main(void) {
    static const unsigned lengths[] = {1, 7, 8, 513, LONGEST};
    static float values[SOURCES * LONGEST];
    static uint8_t narrow[SOURCES * LONGEST * WIDEST], out[LONGEST * WIDEST], quantiles[LONGEST];
    for (unsigned k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        const unsigned n = lengths[k];
        for (unsigned i = 0; i < SOURCES * n; i++) values[i] = number();
        static const unsigned types[] = {GL_TYPE_FLOAT32, GL_TYPE_FLOAT16, GL_TYPE_BFLOAT16};
        for (unsigned t = 0; t < sizeof types / sizeof *types; t++) {
            const unsigned size = gl_element_bytes(types[t]);
            gl_convert(narrow, types[t], (const uint8_t *)values, GL_TYPE_FLOAT32, SOURCES * n);
            const uint8_t *const sources[] = {narrow, narrow + (size_t)n * size};
            const gl_worth worth = gl_contribute(out, sources, 2, 3, narrow + 2 * (size_t)n * size, n, types[t]);
            const uint64_t hash = digest(digest(14695981039346656037u, narrow, SOURCES * (size_t)n * size), out, (size_t)n * size);
            printf("%u %u %016" PRIx64 " %a %a\n", n, types[t], hash, worth.mean, worth.squares);
        }
        for (unsigned i = 0; i < n; i++) values[i] = fabsf(values[i]);
        gl_quantiles(values, n, quantiles);
        printf("%u quantiles %016" PRIx64 "\n", n, digest(14695981039346656037u, quantiles, n));
    }
    return 0;
}
