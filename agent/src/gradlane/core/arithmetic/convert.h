/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Conversion between the floating-point types that travel: rounded to nearest, ties to even.
 */
#ifndef GRADLANE_CONVERT_H
#define GRADLANE_CONVERT_H

#include <stdint.h>

/* Types: GL_TYPE_FLOAT32, FLOAT16 or BFLOAT16. `to` and `from` do not overlap. */
void gl_convert(uint8_t *to, unsigned to_type, const uint8_t *from, unsigned from_type, uint64_t elements);

#endif
