/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Which slices seem lost, and who sends them again.
 */
#ifndef GRADLANE_LOST_H
#define GRADLANE_LOST_H

#include "sums/sums.h"

/* When a slice that is in flight is given up for its age. */
uint64_t lost_at(const stream *s, const flight *f);
/* A slice's sum has come. `asked`: because this rank has sent the slice again. */
void lost_learn(sums *x, stream *s, const flight *f, bool asked, uint64_t now);

#endif
