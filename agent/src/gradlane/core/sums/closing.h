/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A slice may be summed without some workers, within the loss budget of each. For each message one worker, its closer, tells
 * the switch who may be missing, when the slice seems lost. All count for themselves who is missing.
 *
 * Sets of workers are those of `members`: of more than GL_SUM_MEMBERS there are all, and nobody.
 */
#ifndef GRADLANE_CLOSING_H
#define GRADLANE_CLOSING_H

#include "sums/stream.h"

static inline bool has_bits(const gl_config *c) { return c->workers <= GL_SUM_MEMBERS; }
static inline uint32_t all_workers(const gl_config *c) {
    return UINT32_MAX >> (has_bits(c) ? GL_SUM_MEMBERS - c->workers : 0);
}
static inline uint32_t only(const gl_config *c, unsigned rank) { return has_bits(c) ? 1u << rank : UINT32_MAX; }
static inline bool is_among(const gl_config *c, uint32_t workers, unsigned rank) { return workers & only(c, rank); }
static inline unsigned how_many(const gl_config *c, uint32_t workers) {
    return workers == all_workers(c) ? c->workers : (unsigned)__builtin_popcount(workers);
}
static inline unsigned closer_of(const gl_config *c, const stream *s, const part *p) {
    return (unsigned)((s->tensor + (uint64_t)p->step) % c->workers);
}
static inline bool is_closer(const gl_config *c, const stream *s, const part *p) { return closer_of(c, s, p) == c->rank; }

/* The step before is none that the switch has summed in this generation. */
void closing_begin(stream *s, uint32_t step);
/* Whether every other worker is in a sum that is late enough for a number to be sent. */
bool closing_lets_send(const stream *s, uint32_t number);
/* A number is sent for the first time; returns the epoch that its datagram says. */
uint8_t closing_sent(stream *s, flight *f);
/* A slice seems lost. The closer lets workers be missing in it; returns whether any. */
bool closing_begins(const gl_config *c, stream *s, flight *f);
/* Whether the closer may complete it without this rank, so that sending it again can wait. */
bool closing_awaited(const gl_config *c, const stream *s, const flight *f);
/* Whether a sum with these members is within all budgets. */
bool closing_permits(const gl_config *c, const stream *s, const flight *f, uint32_t members);
/* It has come. */
void closing_came(const gl_config *c, stream *s, const flight *f, uint32_t members, uint8_t epoch);

#endif
