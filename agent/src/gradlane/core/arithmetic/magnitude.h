/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What a slice is worth to its receiver, and the one pass over a contribution that finds it out.
 */
#ifndef GRADLANE_MAGNITUDE_H
#define GRADLANE_MAGNITUDE_H

#include <stdint.h>

/* Mean absolute value and sum of squares of a slice. */
typedef struct {
    float mean;
    double squares;
} gl_worth;

/* Makes the values of a slice that this host contributes, and their worth, in one pass: the sum of `count` processes'
 * values in their order, divided by `divisor`, plus `residual` (NULL: none), in float32 whatever the type. `out` may be
 * one of `sources`. `type`: GL_TYPE_FLOAT32, FLOAT16 or BFLOAT16. */
gl_worth gl_contribute(uint8_t *out, const uint8_t *const *sources, unsigned count, unsigned divisor,
                       const uint8_t *residual, uint64_t elements, unsigned type);

/* The quantile (0-255) of each slice's mean absolute value among the `slices` of its message, equal for (nearly) equal
 * means: free of scale, so that it needs no threshold per model (DLCP, arXiv 2008.08445). What is not finite ranks
 * highest. O(slices): means are counted by their place between the least and the largest, on a logarithmic scale. */
void gl_quantiles(const float *means, uint32_t slices, uint8_t *quantiles);

#endif
