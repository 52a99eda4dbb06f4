/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What is told of tensors that a switch sums, and how a step of them is completed without it.
 */
#ifndef GRADLANE_STATES_H
#define GRADLANE_STATES_H

#include <stdint.h>

#include "operation/lateness.h"

/* A tensor that a switch may sum, of FLOAT32, FLOAT16 or BFLOAT16: `elements` of each of its partitions. */
typedef struct {
    uint16_t tensor;
    uint8_t element_type, count;
    const uint64_t *elements;
} gl_sum_stream;

/* The latest step of a tensor that has begun at this host, and the latest for which it needs nothing of the switch any more:
 * the same, or the one before, as only a step that the switch sums can be in between. */
typedef struct {
    uint16_t tensor;
    uint32_t completed, begun;
    uint64_t since; /* when the latest was submitted, of which no sum has come yet; 0: some has, or no switch sums it */
} gl_sum_state;

/* How long this host has waited for others, in no order: us from when it submitted a (wire) tensor of a step until its first sum
 * came, which comes to all at once. Of the tensors of a step it is that of the highest number, the same at all ranks. */
typedef struct {
    uint32_t steps, step[GL_LATE_STEPS];
    uint16_t tensor[GL_LATE_STEPS];
    uint32_t waited[GL_LATE_STEPS];
} gl_sum_waits;

/* A step of a tensor that all hosts have begun and not all have completed: they remind the switch of it, or do without it. */
typedef struct {
    uint16_t tensor;
    uint32_t step;
} gl_sum_rerun;

#endif
