/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What all ways of a part of a tensor's step have in common.
 */
#ifndef GRADLANE_PARTS_H
#define GRADLANE_PARTS_H

#include "sums/sums.h"

static inline uint16_t wire_tensor(const stream *s, const part *p) {
    return (uint16_t)(s->tensor * MOST_PARTS + (p - s->parts));
}
static inline bool is_to_do(rerun_stage stage) { return stage == TO_DO || stage == DONE; }
static inline void rerun_goes_on(sums *x, part *p, rerun_stage stage) {
    x->pending += is_to_do(stage) - is_to_do(p->rerun);
    p->rerun = stage;
}

/* An operation of hosts; the job is over if it can't be. */
void start_operation(sums *x, const gl_submission *is, uint64_t now);
/* The sum of a slice lacks this rank: its gradient is owed as a whole. */
void part_owe(sums *x, stream *s, part *p, uint32_t slice);
/* The integers of a slice, which all have alike: they become its result and the exponent of the next one. */
void part_take(sums *x, stream *s, part *p, uint32_t slice, const int32_t *integers, int64_t most);
/* All slices of a part have their results. */
void part_complete(sums *x, stream *s, part *p);

#endif
