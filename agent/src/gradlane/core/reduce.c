/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic on elements, in float32 whatever the type on the wire: the reduction, sums in rank order and then one
 * division, and what a slice is worth.
 */
#include <math.h>

#include "internal.h"

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

enum { BLOCK = 512, LANES = 16 };

static void sum_float32(float *sum, const uint8_t *const *sources, unsigned count, size_t offset, size_t n) {
    memcpy(sum, sources[0] + offset * 4, n * 4);
    for (unsigned s = 1; s < count; s++) {
        float block[BLOCK];
        memcpy(block, sources[s] + offset * 4, n * 4);
        for (size_t i = 0; i < n; i++) sum[i] += block[i];
    }
}

static void sum_float16(float *sum, const uint8_t *const *sources, unsigned count, size_t offset, size_t n) {
    _Float16 block[BLOCK];
    memcpy(block, sources[0] + offset * 2, n * 2);
    for (size_t i = 0; i < n; i++) sum[i] = (float)block[i];
    for (unsigned s = 1; s < count; s++) {
        memcpy(block, sources[s] + offset * 2, n * 2);
        for (size_t i = 0; i < n; i++) sum[i] += (float)block[i];
    }
}

void reduce_slice(uint8_t *result, const uint8_t *const *sources, unsigned count, unsigned divisor, uint32_t bytes,
                  unsigned element_type) {
    const bool half = element_type == GL_TYPE_FLOAT16;
    const size_t total = bytes / (half ? 2 : 4);
    const float by = (float)divisor;
    float sum[BLOCK];
    for (size_t offset = 0; offset < total; offset += BLOCK) {
        const size_t n = total - offset < BLOCK ? total - offset : BLOCK;
        if (half) {
            _Float16 block[BLOCK];
            sum_float16(sum, sources, count, offset, n);
            for (size_t i = 0; i < n; i++) block[i] = (_Float16)(sum[i] / by);
            memcpy(result + offset * 2, block, n * 2);
        } else {
            sum_float32(sum, sources, count, offset, n);
            for (size_t i = 0; i < n; i++) sum[i] /= by;
            memcpy(result + offset * 4, sum, n * 4);
        }
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
    const bool half = element_type == GL_TYPE_FLOAT16;
    for (uint64_t first = 0; first < elements; first += per_slice) {
        const size_t length = elements - first < per_slice ? elements - first : per_slice;
        float sum = 0, block[BLOCK];
        for (size_t offset = 0; offset < length; offset += BLOCK) {
            const size_t n = length - offset < BLOCK ? length - offset : BLOCK;
            (half ? sum_float16 : sum_float32)(block, &values, 1, first + offset, n);
            sum += sum_of_absolute(block, n);
        }
        *means++ = sum / (float)length;
    }
}
