/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How late each worker's contributions come, step by step: at an owner of parts, in a row of a grid, and in a ring.
 */
#ifndef GRADLANE_LATENESS_H
#define GRADLANE_LATENESS_H

#include <stdint.h>

enum { GL_LATE_STEPS = 32 }; /* that are remembered */

/* Of one worker, the latest step first: us that its contribution began to come after the median of all workers', or of its
 * row's, of that tensor of the step where this was most. Steps in which it did not show are left out. */
typedef struct {
    uint32_t steps, step; /* how many are known; the latest of any worker */
    uint32_t late[GL_LATE_STEPS];
} gl_lateness;

/* What a rank of a ring knows, in no order: us by which the one that sends to it (`rank`) submitted a tensor of a step later
 * than itself; negative: earlier. Of the tensors of a step it is that of the highest number, the same at all ranks. */
typedef struct {
    uint32_t steps, rank, step[GL_LATE_STEPS];
    uint16_t tensor[GL_LATE_STEPS];
    int32_t later[GL_LATE_STEPS];
} gl_neighbour;

#endif
