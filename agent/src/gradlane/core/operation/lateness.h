/* SPDX-License-Identifier: Apache-2.0
 *
 * How late each worker's contributions come, step by step, at an owner of parts.
 */
#ifndef GRADLANE_LATENESS_H
#define GRADLANE_LATENESS_H

#include <stdint.h>

enum { GL_LATE_STEPS = 32 }; /* that are remembered */

/* Of one worker, the latest step first: us that its contribution began to come after the median of all workers', of that
 * tensor of the step where this was most. */
typedef struct {
    uint32_t steps, step; /* how many are known; the latest */
    uint32_t late[GL_LATE_STEPS];
} gl_lateness;

#endif
