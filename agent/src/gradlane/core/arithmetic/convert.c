/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Conversion of arrays, in blocks that stay in the cache.
 */
#include "arithmetic/convert.h"

#include "arithmetic/elements.h"
#include "arithmetic/instructions.h"
#include "arithmetic/types.h"

enum { BLOCK = 512 };

GL_CLONES void gl_convert(uint8_t *to, unsigned to_type, const uint8_t *from, unsigned from_type, uint64_t elements) {
    const uint32_t to_item = gl_element_bytes(to_type), from_item = gl_element_bytes(from_type);
    float values[BLOCK];
    for (uint64_t at = 0; at < elements; at += BLOCK) {
        const uint64_t n = elements - at < BLOCK ? elements - at : BLOCK;
        load_floats(values, from + at * from_item, n, from_type);
        store_floats(to + at * to_item, values, n, to_type);
    }
}
