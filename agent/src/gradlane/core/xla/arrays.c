/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The values of several arrays of XLA's as one flat array, and back.
 */
#include <string.h>

#include "arithmetic/convert.h"
#include "arithmetic/types.h"
#include "xla/handler.h"

enum { XLA_TOKEN = 17 };

static uint64_t elements_of(const gl_xla_array *array) {
    uint64_t product = array->type != XLA_TOKEN;
    for (int64_t i = 0; i < array->rank; i++) product *= (uint64_t)array->dimensions[i];
    return product;
}

static int fit(const gl_xla_array *const *arrays, int64_t count, int type, uint64_t elements) {
    for (int64_t i = 0; i < count; i++) {
        const uint64_t own = elements_of(arrays[i]);
        if (own && arrays[i]->type != type) return 0;
        elements -= own;
    }
    return elements == 0;
}

static void copy(uint8_t *to, unsigned to_type, const uint8_t *from, unsigned from_type, uint64_t elements) {
    if (to_type == from_type)
        memcpy(to, from, elements * gl_element_bytes(to_type));
    else
        gl_convert(to, to_type, from, from_type, elements);
}

int gl_xla_gather(const gl_xla_array *const *arrays, int64_t count, int type, uint8_t *to, unsigned to_type,
                  unsigned from_type, uint64_t elements) {
    if (!fit(arrays, count, type, elements)) return -1;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t own = elements_of(arrays[i]);
        if (!own) continue;
        copy(to, to_type, arrays[i]->data, from_type, own);
        to += own * gl_element_bytes(to_type);
    }
    return 0;
}

int gl_xla_scatter(const gl_xla_array *const *arrays, int64_t count, int type, const uint8_t *from, unsigned from_type,
                   unsigned to_type, uint64_t elements) {
    if (!fit(arrays, count, type, elements)) return -1;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t own = elements_of(arrays[i]);
        if (!own) continue;
        copy(arrays[i]->data, to_type, from, from_type, own);
        from += own * gl_element_bytes(from_type);
    }
    return 0;
}
