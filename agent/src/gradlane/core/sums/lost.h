/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Which slices seem lost, and who sends them again.
 */
#ifndef GRADLANE_LOST_H
#define GRADLANE_LOST_H

#include "sums/sums.h"

/* When a slice that is in flight is given up for its age. */
uint64_t lost_at(const stream *s, const flight *f);
/* A slice's sum has come. `repaired`: because somebody has sent the slice again; `asked`: this rank has. */
void lost_learn(sums *x, stream *s, const flight *f, bool repaired, bool asked, uint64_t now);

#endif
