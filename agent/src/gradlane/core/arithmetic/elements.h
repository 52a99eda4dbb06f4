/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The three floating-point types that are computed with in float32.
 */
#ifndef GRADLANE_ELEMENTS_H
#define GRADLANE_ELEMENTS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "wire.h"

#ifdef __x86_64__
/* A build for any x86-64 has no instruction that it may use for these, and converts an element in about 60 ns; so whether
 * there is one is asked at run time. Both convert as many elements as make up whole vectors, and return their number. */
__attribute__((target("avx,f16c"))) static inline size_t load_float16_f16c(float *restrict to, const uint8_t *restrict from,
                                                                           size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 2 * i))));
    return i;
}

__attribute__((target("avx,f16c"))) static inline size_t store_float16_f16c(uint8_t *restrict to,
                                                                            const float *restrict from, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + 2 * i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}

static inline int has_f16c(void) { return __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c"); }
#endif

static inline void load_float16(float *restrict to, const uint8_t *restrict from, size_t n) {
    size_t i = 0;
#ifdef __x86_64__
    if (has_f16c()) i = load_float16_f16c(to, from, n);
#endif
    for (; i < n; i++) {
        _Float16 value;
        memcpy(&value, from + 2 * i, sizeof value);
        to[i] = (float)value;
    }
}

static inline void store_float16(uint8_t *restrict to, const float *restrict from, size_t n) {
    size_t i = 0;
#ifdef __x86_64__
    if (has_f16c()) i = store_float16_f16c(to, from, n);
#endif
    for (; i < n; i++) {
        const _Float16 value = (_Float16)from[i];
        memcpy(to + 2 * i, &value, sizeof value);
    }
}

static inline void load_bfloat16(float *restrict to, const uint8_t *restrict from, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, sizeof half);
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(to + i, &bits, sizeof bits);
    }
}

/* Rounds to nearest, ties to even; a NaN stays one. */
static inline void store_bfloat16(uint8_t *restrict to, const float *restrict from, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
        const uint16_t half = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
        memcpy(to + 2 * i, &half, sizeof half);
    }
}

/* `type`: GL_TYPE_FLOAT32, FLOAT16 or BFLOAT16. `from` and `to` need no alignment. */
static inline void load_floats(float *restrict to, const uint8_t *restrict from, size_t n, unsigned type) {
    if (type == GL_TYPE_FLOAT32) {
        memcpy(to, from, n * 4);
    } else if (type == GL_TYPE_FLOAT16) {
        load_float16(to, from, n);
    } else {
        load_bfloat16(to, from, n);
    }
}

static inline void store_floats(uint8_t *restrict to, const float *restrict from, size_t n, unsigned type) {
    if (type == GL_TYPE_FLOAT32) {
        memcpy(to, from, n * 4);
    } else if (type == GL_TYPE_FLOAT16) {
        store_float16(to, from, n);
    } else {
        store_bfloat16(to, from, n);
    }
}

#endif
