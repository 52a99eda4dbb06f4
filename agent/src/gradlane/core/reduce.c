/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic on elements: contributions are combined in their order, block by block. Types of 16 bits are combined in
 * float32 and rounded once, to nearest even; integers wrap. And what a slice is worth.
 */
#include <math.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "internal.h"

enum { BLOCK = 512, LANES = 16 };

unsigned gl_element_bytes(unsigned element_type) {
    switch (element_type) {
    case GL_TYPE_UINT8:
    case GL_TYPE_INT8: return 1;
    case GL_TYPE_FLOAT16:
    case GL_TYPE_BFLOAT16: return 2;
    case GL_TYPE_FLOAT32:
    case GL_TYPE_INT32: return 4;
    case GL_TYPE_FLOAT64:
    case GL_TYPE_INT64: return 8;
    default: return 0;
    }
}

static void load_float16(float *to, const uint8_t *from, size_t n) {
    size_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 2 * i))));
#endif
    for (; i < n; i++) {
        _Float16 value;
        memcpy(&value, from + 2 * i, 2);
        to[i] = (float)value;
    }
}

static void store_float16(uint8_t *to, const float *from, size_t n) {
    size_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + 2 * i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++) {
        const _Float16 value = (_Float16)from[i];
        memcpy(to + 2 * i, &value, 2);
    }
}

static void load_bfloat16(float *to, const uint8_t *from, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, 2);
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(to + i, &bits, 4);
    }
}

static void store_bfloat16(uint8_t *to, const float *from, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, 4);
        const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
        const uint16_t half = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
        memcpy(to + 2 * i, &half, 2);
    }
}

static void load_float32(float *to, const uint8_t *from, size_t n) { memcpy(to, from, 4 * n); }
static void store_float32(uint8_t *to, const float *from, size_t n) { memcpy(to, from, 4 * n); }
static void load_float64(double *to, const uint8_t *from, size_t n) { memcpy(to, from, 8 * n); }
static void store_float64(uint8_t *to, const double *from, size_t n) { memcpy(to, from, 8 * n); }

#define EACH(expression) \
    for (size_t i = 0; i < n; i++) a[i] = (expression)

/* a[i] becomes the combination of a[i] and b[i]. SUM_TYPE: in which sums and products are computed. */
#define COMBINE(NAME, TYPE, SUM_TYPE) \
    static void combine_##NAME(TYPE *restrict a, const TYPE *restrict b, size_t n, unsigned reduction) { \
        switch (reduction) { \
        case GL_MIN: EACH(b[i] < a[i] ? b[i] : a[i]); break; \
        case GL_MAX: EACH(b[i] > a[i] ? b[i] : a[i]); break; \
        case GL_PRODUCT: EACH((TYPE)((SUM_TYPE)a[i] * (SUM_TYPE)b[i])); break; \
        default: EACH((TYPE)((SUM_TYPE)a[i] + (SUM_TYPE)b[i])); \
        } \
    }
COMBINE(float32, float, float)
COMBINE(float64, double, double)
COMBINE(uint8, uint8_t, uint32_t)
COMBINE(int8, int8_t, uint32_t)
COMBINE(int32, int32_t, uint32_t)
COMBINE(int64, int64_t, uint64_t)

/* Multiplying with the inverse of a power of two is the same as the division, and faster. */
#define REDUCE_FLOAT(NAME, TYPE, KERNEL, SIZE) \
    static void reduce_##NAME(uint8_t *result, const uint8_t *const *sources, unsigned count, unsigned reduction, \
                              unsigned divisor, size_t total) { \
        const TYPE by = (TYPE)divisor, factor = 1 / by; \
        const bool exact = !(divisor & (divisor - 1)); \
        TYPE a[BLOCK], b[BLOCK]; \
        for (size_t at = 0; at < total; at += BLOCK) { \
            const size_t n = total - at < BLOCK ? total - at : BLOCK; \
            load_##NAME(a, sources[0] + at * SIZE, n); \
            for (unsigned s = 1; s < count; s++) { \
                load_##NAME(b, sources[s] + at * SIZE, n); \
                combine_##KERNEL(a, b, n, reduction); \
            } \
            if (divisor > 1) { \
                if (exact) \
                    EACH(a[i] * factor); \
                else \
                    EACH(a[i] / by); \
            } \
            store_##NAME(result + at * SIZE, a, n); \
        } \
    }
REDUCE_FLOAT(float16, float, float32, 2)
REDUCE_FLOAT(bfloat16, float, float32, 2)
REDUCE_FLOAT(float32, float, float32, 4)
REDUCE_FLOAT(float64, double, float64, 8)

#define REDUCE_INTEGER(NAME, TYPE) \
    static void reduce_##NAME(uint8_t *result, const uint8_t *const *sources, unsigned count, unsigned reduction, \
                              size_t total) { \
        TYPE a[BLOCK], b[BLOCK]; \
        for (size_t at = 0; at < total; at += BLOCK) { \
            const size_t n = total - at < BLOCK ? total - at : BLOCK; \
            memcpy(a, sources[0] + at * sizeof *a, n * sizeof *a); \
            for (unsigned s = 1; s < count; s++) { \
                memcpy(b, sources[s] + at * sizeof *b, n * sizeof *b); \
                combine_##NAME(a, b, n, reduction); \
            } \
            memcpy(result + at * sizeof *a, a, n * sizeof *a); \
        } \
    }
REDUCE_INTEGER(uint8, uint8_t)
REDUCE_INTEGER(int8, int8_t)
REDUCE_INTEGER(int32, int32_t)
REDUCE_INTEGER(int64, int64_t)

void reduce_slice(uint8_t *result, const uint8_t *const *sources, unsigned count, unsigned reduction, unsigned divisor,
                  uint32_t bytes, unsigned element_type) {
    if (count == 1 && divisor <= 1) {
        memmove(result, sources[0], bytes);
        return;
    }
    const size_t total = bytes / gl_element_bytes(element_type);
    switch (element_type) {
    case GL_TYPE_FLOAT16: reduce_float16(result, sources, count, reduction, divisor, total); break;
    case GL_TYPE_BFLOAT16: reduce_bfloat16(result, sources, count, reduction, divisor, total); break;
    case GL_TYPE_FLOAT32: reduce_float32(result, sources, count, reduction, divisor, total); break;
    case GL_TYPE_FLOAT64: reduce_float64(result, sources, count, reduction, divisor, total); break;
    case GL_TYPE_UINT8: reduce_uint8(result, sources, count, reduction, total); break;
    case GL_TYPE_INT8: reduce_int8(result, sources, count, reduction, total); break;
    case GL_TYPE_INT32: reduce_int32(result, sources, count, reduction, total); break;
    default: reduce_int64(result, sources, count, reduction, total);
    }
}

static float sum_of_absolute(const float *values, size_t n) {
    float lanes[LANES] = {0}; /* that the compiler can add in parallel */
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) lanes[k] += fabsf(values[i + k]);
    for (; i < n; i++) lanes[i % LANES] += fabsf(values[i]);
    float sum = 0;
    for (size_t k = 0; k < LANES; k++) sum += lanes[k];
    return sum;
}

void gl_mean_absolute(const uint8_t *values, uint64_t elements, uint32_t per_slice, unsigned element_type, float *means) {
    const size_t size = gl_element_bytes(element_type);
    for (uint64_t first = 0; first < elements; first += per_slice) {
        const size_t length = elements - first < per_slice ? elements - first : per_slice;
        float sum = 0, block[BLOCK];
        for (size_t offset = 0; offset < length; offset += BLOCK) {
            const size_t n = length - offset < BLOCK ? length - offset : BLOCK;
            const uint8_t *from = values + (first + offset) * size;
            (element_type == GL_TYPE_FLOAT16    ? load_float16
             : element_type == GL_TYPE_BFLOAT16 ? load_bfloat16
                                                : load_float32)(block, from, n);
            sum += sum_of_absolute(block, n);
        }
        *means++ = sum / (float)length;
    }
}
