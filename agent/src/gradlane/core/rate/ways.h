/* SPDX-License-Identifier: Apache-2.0
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
    uint8_t passed[GL_WAYS]; /* that have, as the last REPORT said; it wraps */
    uint32_t credits;     /* of all ways */
    unsigned turn;
} ways;

/* The way of the next slice: the next one with a credit, which is used up. Without any, the ways come in turn. */
unsigned ways_take(ways *w);
static inline unsigned ways_last(const ways *w) { return (w->turn - 1) % GL_WAYS + 1; } /* of the slice before */
/* `passed`: by way, the slices that have arrived without an ECN mark, modulo 256. */
void ways_report(ways *w, const uint8_t passed[GL_WAYS]);

#endif
