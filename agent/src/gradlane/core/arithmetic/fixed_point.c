/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Fixed point: in blocks that stay in the first-level cache, in loops that the compiler turns into vectors.
 */
#include "arithmetic/fixed_point.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "arithmetic/elements.h"
#include "arithmetic/instructions.h"

enum { BLOCK = 512, EXPONENT_MOST = 126, ZERO_STEP = 6 };

unsigned gl_lane_bytes(unsigned lanes) {
    return lanes == GL_TYPE_INT16_LANES ? 2 : lanes == GL_TYPE_INT32_LANES ? 4 : 0;
}

uint32_t gl_lane_limit(unsigned lanes, unsigned workers) {
    return (lanes == GL_TYPE_INT16_LANES ? UINT16_MAX : UINT32_MAX) / (2 * workers);
}

/* Sums should use F >> headroom(lanes). What comes suddenly, from one worker alone, is many times as large as what has been
 * summed. Of 16 bits fewer can be spared for it. */
static unsigned headroom(unsigned lanes) { return lanes == GL_TYPE_INT16_LANES ? 5 : 9; }

/* The greatest float that is no more. */
static float float_below(uint32_t limit) {
    const float near = (float)limit;
    return (double)near > limit ? nextafterf(near, 0) : near;
}

static inline uint16_t swap16(uint16_t v) { return (uint16_t)(v << 8 | v >> 8); }

static inline void store_lanes(uint8_t *to, const int32_t *integers, uint32_t bias, size_t n, unsigned bytes) {
    if (bytes == 2) {
        for (size_t i = 0; i < n; i++) {
            const uint16_t lane = swap16((uint16_t)((uint32_t)integers[i] + bias));
            memcpy(to + 2 * i, &lane, sizeof lane);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            const uint32_t lane = __builtin_bswap32((uint32_t)integers[i] + bias);
            memcpy(to + 4 * i, &lane, sizeof lane);
        }
    }
}

static inline void load_lanes(uint32_t *to, const uint8_t *from, size_t n, unsigned bytes) {
    if (bytes == 2) {
        for (size_t i = 0; i < n; i++) {
            uint16_t lane;
            memcpy(&lane, from + 2 * i, sizeof lane);
            to[i] = swap16(lane);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            uint32_t lane;
            memcpy(&lane, from + 4 * i, sizeof lane);
            to[i] = __builtin_bswap32(lane);
        }
    }
}

/* What is beyond the limit, which need not be a float, or is so large that its product is none, or no number: seldom, so one by
 * one. In 64 bits or more, so that it is rounded once: what is too small for them is too small for a float, too. */
static void mend(int32_t *integers, float *left, const float *values, size_t n, uint32_t limit, uint32_t infinite, float scale,
                 float most) {
    for (size_t i = 0; i < n; i++) {
        const float rounded = rintf(values[i] / scale);
        const bool beyond = fabsf(rounded) > most;
        if (beyond) integers[i] = rounded > 0 ? (int32_t)limit : -(int32_t)limit;
        if (beyond || !(fabsf(left[i]) <= FLT_MAX)) left[i] = (float)(values[i] - (long double)integers[i] * scale);
        if (isinf(values[i])) integers[i] = values[i] > 0 ? (int32_t)infinite : -(int32_t)infinite;
        if (!(fabsf(values[i]) <= FLT_MAX)) left[i] = 0;
    }
}

/* A block. `left`: what the integers do not say. Returns how many are beyond the limit. */
static inline uint32_t quantise(int32_t *integers, float *left, const float *values, size_t n, int exponent, uint32_t limit,
                                uint32_t infinite) {
    const float inverse = ldexpf(1, -exponent), scale = ldexpf(1, exponent), most = float_below(limit);
    uint32_t beyond = 0, odd = 0;
    for (size_t i = 0; i < n; i++) {
        float rounded = rintf(values[i] * inverse);
        rounded = rounded == rounded ? rounded : 0;
        beyond += fabsf(rounded) > most;
        rounded = rounded < most ? rounded : most;
        rounded = rounded > -most ? rounded : -most;
        integers[i] = (int32_t)rounded;
        left[i] = values[i] - rounded * scale;
        odd += !(fabsf(left[i]) <= FLT_MAX);
    }
    if (beyond || odd) mend(integers, left, values, n, limit, infinite, scale, most);
    return beyond;
}

GL_CLONES uint64_t gl_to_integers(int32_t *to, unsigned lanes, unsigned workers, const uint8_t *from, unsigned type,
                                  uint64_t elements, int exponent, uint8_t *owed) {
    const uint32_t item = gl_element_bytes(type), limit = gl_lane_limit(lanes, workers), infinite = limit >> headroom(lanes);
    float values[BLOCK], left[BLOCK];
    uint64_t clipped = 0;
    for (uint64_t at = 0; at < elements; at += BLOCK) {
        const size_t n = elements - at < BLOCK ? elements - at : BLOCK;
        load_floats(values, from + at * item, n, type);
        clipped += quantise(to + at, left, values, n, exponent, limit, infinite);
        if (owed) store_floats(owed + at * item, left, n, type);
    }
    return clipped;
}

GL_CLONES uint64_t gl_to_lanes(uint8_t *to, unsigned lanes, unsigned workers, uint32_t count, const uint8_t *from,
                               unsigned type, uint64_t elements, int exponent, uint8_t *owed) {
    const uint32_t item = gl_element_bytes(type), limit = gl_lane_limit(lanes, workers), infinite = limit >> headroom(lanes);
    const unsigned bytes = gl_lane_bytes(lanes);
    float values[BLOCK], left[BLOCK];
    int32_t integers[BLOCK];
    uint64_t clipped = 0;
    for (uint64_t at = 0; at < elements; at += BLOCK) {
        const size_t n = elements - at < BLOCK ? elements - at : BLOCK;
        load_floats(values, from + at * item, n, type);
        clipped += quantise(integers, left, values, n, exponent, limit, infinite);
        if (owed) store_floats(owed + at * item, left, n, type);
        store_lanes(to + at * bytes, integers, limit, n, bytes);
    }
    for (uint64_t i = elements; i < count; i++) store_lanes(to + i * bytes, &(int32_t){0}, limit, 1, bytes);
    return clipped;
}

GL_CLONES void gl_owe(uint8_t *owed, const uint8_t *from, unsigned type, uint64_t elements) {
    const uint32_t item = gl_element_bytes(type);
    float values[BLOCK];
    for (uint64_t at = 0; at < elements; at += BLOCK) {
        const size_t n = elements - at < BLOCK ? elements - at : BLOCK;
        load_floats(values, from + at * item, n, type);
        for (size_t i = 0; i < n; i++) values[i] = fabsf(values[i]) <= FLT_MAX ? values[i] : 0;
        store_floats(owed + at * item, values, n, type);
    }
}

GL_CLONES int64_t gl_from_lanes(int32_t *integers, const uint8_t *from, unsigned lanes, uint32_t zero, uint64_t elements) {
    const unsigned bytes = gl_lane_bytes(lanes);
    uint32_t least = UINT32_MAX, greatest = 0, block[BLOCK];
    for (uint64_t at = 0; at < elements; at += BLOCK) {
        const size_t n = elements - at < BLOCK ? elements - at : BLOCK;
        load_lanes(block, from + at * bytes, n, bytes);
        for (size_t i = 0; i < n; i++) {
            least = block[i] < least ? block[i] : least;
            greatest = block[i] > greatest ? block[i] : greatest;
            integers[at + i] = (int32_t)(block[i] - zero);
        }
    }
    if (greatest > 2 * zero) return -1;
    const int64_t above = (int64_t)greatest - zero, below = (int64_t)zero - least;
    return above > below ? above : below;
}

GL_CLONES void gl_from_sums(uint8_t *to, unsigned type, const int32_t *sums, uint64_t elements, int exponent,
                            unsigned divisor) {
    const float scale = ldexpf(1, exponent) / (float)divisor;
    const uint32_t item = gl_element_bytes(type);
    float values[BLOCK];
    for (uint64_t at = 0; at < elements; at += BLOCK) {
        const size_t n = elements - at < BLOCK ? elements - at : BLOCK;
        for (size_t i = 0; i < n; i++) values[i] = (float)sums[at + i] * scale;
        store_floats(to + at * item, values, n, type);
    }
}

static int bounded(int exponent) {
    return exponent < -EXPONENT_MOST ? -EXPONENT_MOST : exponent > EXPONENT_MOST ? EXPONENT_MOST : exponent;
}

int gl_next_exponent(int exponent, int64_t most, unsigned lanes, unsigned workers) {
    const int64_t greatest = (int64_t)workers * gl_lane_limit(lanes, workers), used = most << headroom(lanes);
    int by = 0; /* the least with used <= greatest 2^by */
    if (!most) {
        const int floor = exponent < GL_FIRST_EXPONENT ? exponent : GL_FIRST_EXPONENT;
        return exponent - ZERO_STEP > floor ? exponent - ZERO_STEP : floor;
    }
    if (greatest <= 4 * used && used <= 2 * greatest) return exponent;
    while (used > greatest << by) by++;
    while (by <= 0 && used << (1 - by) <= greatest) by--;
    return bounded(exponent + by);
}

/* Bits of floats that are not negative ascend with them. */
GL_CLONES static float greatest_finite(const uint8_t *from, unsigned type, uint64_t elements) {
    const uint32_t item = gl_element_bytes(type);
    uint32_t most = 0;
    float values[BLOCK], result;
    for (uint64_t at = 0; at < elements; at += BLOCK) {
        const size_t n = elements - at < BLOCK ? elements - at : BLOCK;
        load_floats(values, from + at * item, n, type);
        for (size_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], sizeof bits);
            bits &= 0x7fffffff;
            bits = bits < 0x7f800000 ? bits : 0;
            most = bits > most ? bits : most;
        }
    }
    memcpy(&result, &most, sizeof result);
    return result;
}

int gl_exponent_of(int exponent, const uint8_t *values, unsigned type, uint64_t elements, unsigned divisor, unsigned lanes,
                   unsigned workers) {
    const double sum = (double)divisor * greatest_finite(values, type, elements); /* exact, as all here */
    const double most = ldexp(sum, (int)headroom(lanes));
    const double greatest = (double)workers * gl_lane_limit(lanes, workers);
    if (most == 0) return exponent;
    int found = ilogb(most) - ilogb(greatest) - 1;
    while (most > ldexp(greatest, found)) found++;
    return bounded(found);
}
