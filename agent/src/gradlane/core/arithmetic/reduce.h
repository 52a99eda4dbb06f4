/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The reduction of contributions.
 */
#ifndef GRADLANE_REDUCE_H
#define GRADLANE_REDUCE_H

#include <stdint.h>

/* Combines `count` sources of `bytes` each in their order; the result is divided by `divisor` (floating-point types; 0
 * and 1: not at all). `result` may be one of the sources. Nothing needs to be aligned. */
void reduce_slice(uint8_t *result, const uint8_t *const *sources, unsigned count, unsigned reduction, unsigned divisor,
                  uint32_t bytes, unsigned element_type);

#endif
