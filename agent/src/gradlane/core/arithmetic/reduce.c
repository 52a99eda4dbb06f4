/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The arithmetic on elements: contributions are combined in their order, block by block. Types of 16 bits are combined in
 * float32 and rounded once, to nearest even; integers wrap.
 */
#include "arithmetic/reduce.h"

#include "arithmetic/elements.h"
#include "arithmetic/instructions.h"
#include "arithmetic/types.h"

enum {
    BLOCK = 512, /* elements */
    FOLDED = 4,  /* sources that one pass takes */
    NEAR = 32,   /* sources that may all be in a near cache */
    LINE = 64,   /* bytes of a cache line */
};

/* Every element is computed from those at its own place, so what is written may be one of the sources. */
#define EACH(expression) \
    _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) a[i] = (expression)

/* Combines two to four sources, in their order, in one pass. */
#define FOLD(OF) \
    if (count == 2) EACH(OF(b[i], c[i])); \
    else if (count == 3) EACH(OF(OF(b[i], c[i]), d[i])); \
    else EACH(OF(OF(OF(b[i], c[i]), d[i]), e[i]))

#define MIN_OF(x, y) ((y) < (x) ? (y) : (x))
#define MAX_OF(x, y) ((y) > (x) ? (y) : (x))

/* SUM_TYPE: in which sums and products are computed. Nothing needs to be aligned. */
#define COMBINE(NAME, TYPE, SUM_TYPE) \
    typedef TYPE NAME##_unaligned __attribute__((aligned(1), may_alias)); \
    static TYPE sum_##NAME(TYPE x, TYPE y) { return (TYPE)((SUM_TYPE)x + (SUM_TYPE)y); } \
    static TYPE product_##NAME(TYPE x, TYPE y) { return (TYPE)((SUM_TYPE)x * (SUM_TYPE)y); } \
    static void fold_##NAME(NAME##_unaligned *a, const void *const *sources, unsigned count, size_t n, unsigned reduction) { \
        const NAME##_unaligned *b = sources[0], *c = sources[1], *d = count > 2 ? sources[2] : c, *e = count > 3 ? sources[3] : c; \
        switch (reduction) { \
        case GL_MIN: FOLD(MIN_OF); break; \
        case GL_MAX: FOLD(MAX_OF); break; \
        case GL_PRODUCT: FOLD(product_##NAME); break; \
        default: FOLD(sum_##NAME); \
        } \
    }
COMBINE(float32, float, float)
COMBINE(float64, double, double)
COMBINE(uint8, uint8_t, uint32_t)
COMBINE(int8, int8_t, uint32_t)
COMBINE(int32, int32_t, uint32_t)
COMBINE(int64, int64_t, uint64_t)

static inline void fetch(const uint8_t *source, size_t bytes) {
    for (size_t at = 0; at < bytes; at += LINE) __builtin_prefetch(source + at);
}

/* Contributions to a block, combined in their order where they lie. Of many, which are in no near cache, the next ones are
 * fetched meanwhile: each is too short for the processor to do it by itself. */
#define COMBINE_ALL(NAME, TYPE) \
    static void combine_all_##NAME(TYPE *a, const uint8_t *const *sources, unsigned count, size_t at, size_t n, \
                                   unsigned reduction) { \
        const size_t offset = at * sizeof *a; \
        const void *some[FOLDED]; \
        unsigned taken = 0; \
        for (unsigned s = 0; s < count;) { \
            for (; taken < FOLDED && s < count; s++) some[taken++] = sources[s] + offset; \
            for (unsigned k = s; count > NEAR && k < s + FOLDED - 1 && k < count; k++) \
                fetch(sources[k] + offset, n * sizeof *a); \
            if (taken == 1) \
                memcpy(a, some[0], n * sizeof *a); \
            else \
                fold_##NAME(a, some, taken, n, reduction); \
            some[0] = a, taken = 1; \
        } \
    }
COMBINE_ALL(float32, float)
COMBINE_ALL(float64, double)
COMBINE_ALL(uint8, uint8_t)
COMBINE_ALL(int8, int8_t)
COMBINE_ALL(int32, int32_t)
COMBINE_ALL(int64, int64_t)

/* The same of types of 16 bits, in float32. */
#define COMBINE_ALL_HALF(NAME) \
    static void combine_all_##NAME(float *a, const uint8_t *const *sources, unsigned count, size_t at, size_t n, \
                                   unsigned reduction) { \
        float b[BLOCK]; \
        const void *const both[] = {a, b}; \
        load_##NAME(a, sources[0] + at * 2, n); \
        for (unsigned s = 1; s < count; s++) { \
            load_##NAME(b, sources[s] + at * 2, n); \
            fold_float32(a, both, 2, n, reduction); \
        } \
    }
COMBINE_ALL_HALF(float16)
COMBINE_ALL_HALF(bfloat16)

static void store_float32(uint8_t *to, const float *from, size_t n) { memcpy(to, from, 4 * n); }
static void store_float64(uint8_t *to, const double *from, size_t n) { memcpy(to, from, 8 * n); }

/* Multiplying with the inverse of a power of two is the same as the division, and faster. */
#define REDUCE_FLOAT(NAME, TYPE, SIZE) \
    static void reduce_##NAME(uint8_t *result, const uint8_t *const *sources, unsigned count, unsigned reduction, \
                              unsigned divisor, size_t total) { \
        const TYPE by = (TYPE)divisor, factor = 1 / by; \
        TYPE a[BLOCK]; \
        for (size_t at = 0; at < total; at += BLOCK) { \
            const size_t n = total - at < BLOCK ? total - at : BLOCK; \
            combine_all_##NAME(a, sources, count, at, n, reduction); \
            if (divisor & (divisor - 1)) \
                EACH(a[i] / by); \
            else if (divisor > 1) \
                EACH(a[i] * factor); \
            store_##NAME(result + at * SIZE, a, n); \
        } \
    }
REDUCE_FLOAT(float16, float, 2)
REDUCE_FLOAT(bfloat16, float, 2)
REDUCE_FLOAT(float32, float, 4)
REDUCE_FLOAT(float64, double, 8)

#define REDUCE_INTEGER(NAME, TYPE) \
    static void reduce_##NAME(uint8_t *result, const uint8_t *const *sources, unsigned count, unsigned reduction, \
                              size_t total) { \
        TYPE a[BLOCK]; \
        for (size_t at = 0; at < total; at += BLOCK) { \
            const size_t n = total - at < BLOCK ? total - at : BLOCK; \
            combine_all_##NAME(a, sources, count, at, n, reduction); \
            memcpy(result + at * sizeof *a, a, n * sizeof *a); \
        } \
    }
REDUCE_INTEGER(uint8, uint8_t)
REDUCE_INTEGER(int8, int8_t)
REDUCE_INTEGER(int32, int32_t)
REDUCE_INTEGER(int64, int64_t)

/* So few that one pass does it, straight into the result. */
#define REDUCE_FEW(NAME) fold_##NAME((NAME##_unaligned *)result, (const void *const *)sources, count, total, reduction)

GL_CLONES void reduce_slice(uint8_t *result, const uint8_t *const *sources, unsigned count, unsigned reduction, unsigned divisor,
                  uint32_t bytes, unsigned element_type) {
    if (count == 1 && divisor <= 1) {
        if (result != sources[0]) memmove(result, sources[0], bytes);
        return;
    }
    const size_t total = bytes / gl_element_bytes(element_type);
    if (count > 1 && count <= FOLDED && divisor <= 1) {
        switch (element_type) {
        case GL_TYPE_FLOAT32: REDUCE_FEW(float32); return;
        case GL_TYPE_FLOAT64: REDUCE_FEW(float64); return;
        case GL_TYPE_UINT8: REDUCE_FEW(uint8); return;
        case GL_TYPE_INT8: REDUCE_FEW(int8); return;
        case GL_TYPE_INT32: REDUCE_FEW(int32); return;
        case GL_TYPE_INT64: REDUCE_FEW(int64); return;
        }
    }
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
