/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Contributions to a node, and those of them that wait for others. What waits of a slice lies together, whoever sent it, so that
 * to reduce a slice of a thousand ranks is not to look at a thousand messages. Of many ranks, what has come of the first ones
 * without a gap is one sum, in their order, so of contributions that come in that order none waits.
 */
#ifndef GRADLANE_WAITING_H
#define GRADLANE_WAITING_H

#include "job/job.h"
#include "plan/plan.h"

/* Which place each contribution has in the order of the ranks; before any comes. */
void place_contributions(node *n, unsigned rank);
bool waiting_new(node *n); /* some may have to wait; false: memory is out */
static inline slot **waiting_of(const node *n, uint32_t i) { return n->waiting + (size_t)i * n->from_count; }
/* A contribution to a slice waits, or is added to those before it. `sources`: room for one of each rank. */
void waiting_put(job *j, node *n, uint32_t i, unsigned from, const uint8_t *payload, uint32_t length, const uint8_t **sources);
/* The same of one that has been kept; NULL: memory is out. */
void waiting_put_kept(job *j, node *n, uint32_t i, unsigned from, slot *kept, const uint8_t **sources);
/* What was contributed to a slice, in rank order. `payload`: what has come last, from `fresh`, and does not wait; or NULL. Returns
 * how many sources there are; `contributors`: how many contributions these are. */
unsigned contributions(const gl_config *c, const node *n, uint32_t i, unsigned fresh, const uint8_t *payload,
                       const uint8_t **sources, unsigned *contributors);
void waiting_drop(job *j, node *n, uint32_t i); /* what waits of a slice */
void waiting_drop_all(job *j, node *n);

#endif
