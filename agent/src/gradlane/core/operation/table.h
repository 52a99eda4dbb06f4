/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The operations that there are, and what they tell.
 */
#ifndef GRADLANE_TABLE_H
#define GRADLANE_TABLE_H

#include "operation/operation.h"

operation *find_operation(const operations *all, uint32_t step, uint16_t tensor);
operation *operation_new(uint32_t step, uint16_t tensor); /* in no bucket yet; NULL: memory is out */
void operation_insert(operations *all, operation *o);
void operation_free(operations *all, operation *o);
void results_free(job *j, node *n); /* what a node has sent on */
/* LOST or MISSED, if anything is and this rank has submitted it: `slices` from `first` on, of which `received` has a bit for
 * each that arrived or counted; NULL: none did. */
void tell_lost(operations *all, const operation *o, uint32_t kind, uint32_t first, uint32_t slices, const uint8_t *received);

static inline gl_event *add_event(operations *all, uint32_t kind, const operation *o, uint32_t slices) {
    return tell(all, kind, o->plan.step, o->plan.tensor, slices);
}

static inline operation *operation_of(const plan *p) { return container_of(p, operation, plan); }

#endif
