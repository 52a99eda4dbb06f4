/* SPDX-License-Identifier: Apache-2.0
 *
 * When the contributions of the latest steps began to come.
 */
#ifndef GRADLANE_ARRIVALS_H
#define GRADLANE_ARRIVALS_H

#include "operation/lateness.h"
#include "plan/plan.h"

typedef struct {
    uint32_t step[GL_LATE_STEPS]; /* by step modulo their number; 0: none yet */
    uint32_t late[GL_LATE_STEPS][GL_MAX_RANKS];
} arrivals;

/* Of a plan that is done: what came of every worker counts, if that was owned here. `since`: when this rank submitted it. */
void arrivals_note(arrivals *a, const gl_config *c, const plan *p, uint64_t since);
void arrivals_of(const arrivals *a, unsigned rank, gl_lateness *lateness);

#endif
