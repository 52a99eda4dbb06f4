/* SPDX-License-Identifier: Apache-2.0
 *
 * The members of a group in rows, for an all-reduce in two levels.
 */
#ifndef GRADLANE_GRID_H
#define GRADLANE_GRID_H

/* Of a group of n members: about its square root; of them a divisor of n where there is one above half of it, so that all
 * rows are of one length. Elsewhere some rows have one member more than others. */
unsigned gl_grid_rows(unsigned n);
/* The place where a row begins; that of row `rows` is n. */
unsigned gl_grid_start(unsigned n, unsigned row);

#endif
