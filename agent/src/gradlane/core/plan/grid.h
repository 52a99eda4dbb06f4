/* SPDX-License-Identifier: Apache-2.0
 *
 * The members of a group in rows, for an all-reduce in two levels.
 */
#ifndef GRADLANE_GRID_H
#define GRADLANE_GRID_H

#include <stdint.h>

/* Of n members in the order of their places, whose racks ascend (NULL: all are in one): how many rows there are. Row k has the
 * places from starts[k] to starts[k + 1] - 1, in `starts` is room for n + 1. A row is a rack, or where that has much more than
 * sqrt(n) members a part of it. A rack of m has m / sqrt(n) rows, or a divisor of m above half of that where there is one, so
 * that its rows are of one length; elsewhere some have one member more than others. */
unsigned gl_grid_rows(const uint16_t *racks, unsigned n, uint16_t *starts);

#endif
