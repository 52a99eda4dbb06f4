/* SPDX-License-Identifier: Apache-2.0
 *
 * The reduction: float32 sums in rank order, then one division, whatever the type on the wire.
 */
#include "internal.h"

enum { BLOCK = 512 };

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
