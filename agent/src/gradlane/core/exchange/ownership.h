/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How tensors are reduced and who owns how much of them, by step, and until when no further step begins. All ranks must
 * reduce a tensor's step alike; how they agree on it is above the core (control/plans.py).
 */
#ifndef GRADLANE_OWNERSHIP_H
#define GRADLANE_OWNERSHIP_H

#include "exchange/tensor.h"

/* Of who reduces a tensor's parts: the servers, or the hosts. */
static inline unsigned owners_of(const gl_exchange *x) { return x->config.servers ? x->config.servers : x->config.hosts; }

/* A step's plan. NULL: all is direct, with equal shares. */
const step_plan *plan_at(const gl_exchange *x, uint32_t step);
/* What its submissions have as `shares`. */
const uint32_t *shares_of(const step_plan *plan);
/* What a submission of a partition says of it, all but what is contributed. */
gl_submission of_partition(const gl_exchange *x, const tensor *t, const partition *p, uint32_t step);
/* A step has begun here, with its processes or without. */
void step_has_begun(gl_exchange *x, uint32_t step);
/* A tensor's step, for which all processes have come, is to be worked on, as soon as it may begin. */
void step_begin(gl_exchange *x, tensor *t);
void ownership_free(ownership *o);

#endif
