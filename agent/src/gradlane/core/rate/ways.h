/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Which way a slice goes: numbers by which switches choose among equal paths, from 1 on. What a number leads to is unknown
 * here; a number by which a slice has got through unmarked is good for another one (REPS: Bonato et al., 2024).
 */
#ifndef GRADLANE_WAYS_H
#define GRADLANE_WAYS_H

#include <stdint.h>

#include "wire.h"

/* Of a flow to one receiver. */
typedef struct {
    uint8_t credit[GL_WAYS]; /* slices that may go this way, as others have got through */
    uint32_t credits;        /* of all ways */
    unsigned turn;
} ways;

/* The way of the next slice: the next one with a credit, which is used up. Without any, the ways come in turn. */
unsigned ways_take(ways *w);
static inline unsigned ways_last(const ways *w) { return (w->turn - 1) % GL_WAYS + 1; } /* of the slice before */
/* What a REPORT says of the slices that have `passed` by each way since the one before, without an ECN mark: the numbers
 * themselves, or, if one does not fit GL_PASSED_BITS, what they are to the largest. A way by which any passed is not 0. */
uint64_t ways_passed(const uint16_t passed[GL_WAYS]);
/* Of such a REPORT; `unmarked`: how many slices have passed by all ways. */
void ways_report(ways *w, uint64_t passed, uint32_t unmarked);

#endif
