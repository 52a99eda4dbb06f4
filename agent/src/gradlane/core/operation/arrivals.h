/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * When the contributions of the latest steps began to come.
 */
#ifndef GRADLANE_ARRIVALS_H
#define GRADLANE_ARRIVALS_H

#include "operation/lateness.h"
#include "plan/plan.h"

typedef struct {
    uint32_t step[GL_LATE_STEPS]; /* by step modulo their number; 0: none yet */
    uint32_t *late[GL_LATE_STEPS]; /* by worker */
    uint64_t *came, *sorted;       /* of the plan that is looked at: by rank, 0: it did not show; of those that did */
    gl_neighbour neighbour; /* by step modulo their number; of step 0: none */
} arrivals;

bool arrivals_new(arrivals *a, const gl_config *c); /* false: memory is out; arrivals_free is called in any case */
void arrivals_free(arrivals *a);
/* Of a plan that is done: when each worker began counts, if that shows here, or those of a row, or when the one before this one
 * in a ring did.
 * `since`: when this rank submitted it. */
void arrivals_note(arrivals *a, const gl_config *c, const plan *p, uint64_t since);
void arrivals_of(const arrivals *a, unsigned rank, gl_lateness *lateness);
void arrivals_neighbour(const arrivals *a, gl_neighbour *neighbour);

#endif
