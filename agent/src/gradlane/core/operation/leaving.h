/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Of which steps late workers have been left out, and whether they may be of one more: of any `window` consecutive steps of a
 * tensor no worker misses more than `steps`.
 */
#ifndef GRADLANE_LEAVING_H
#define GRADLANE_LEAVING_H

#include <stdbool.h>

#include "job/config.h"
#include "operation/left_out.h"

typedef struct {
    uint32_t after, steps, window; /* of gl_config; steps 0: nobody is left out */
    unsigned workers;
    /* By tensor, NULL: nobody has been: of each worker the latest `steps` steps that it was left out of, 0: none. */
    uint32_t **of;
    uint32_t *of_any; /* the same of all tensors together, for operators */
    uint32_t last;     /* of later steps nobody is left out for now, as their owners are not agreed on */
    uint32_t *changed; /* steps from which on elements have other owners, ascending */
    unsigned changes;
    uint64_t *count;   /* by worker: steps that it was left out of */
    uint32_t latest; /* step of any tensor */
} leaving;

bool leaving_new(leaving *l, const gl_config *c); /* false: memory is out; leaving_free is called in any case */
void leaving_free(leaving *l);
/* From that step on elements have other owners than before. False: memory is out. */
bool owners_change(leaving *l, uint32_t first);
bool may_leave_out(const leaving *l, uint16_t tensor, unsigned rank, uint32_t step);
/* Leaves it out, if it may be: its contribution to the step is not awaited, and does not count when it comes. */
bool leave_out(leaving *l, uint16_t tensor, unsigned rank, uint32_t step);
bool was_left_out(const leaving *l, uint16_t tensor, unsigned rank, uint32_t step);
void left_out_of(const leaving *l, unsigned rank, gl_left_out *found);

#endif
