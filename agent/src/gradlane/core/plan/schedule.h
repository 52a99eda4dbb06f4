/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The schedule of StragglAR (Devraj, Ding, Kumar and Kleinberg, arXiv 2505.23523): who sends whom which chunk when.
 */
#ifndef GRADLANE_SCHEDULE_H
#define GRADLANE_SCHEDULE_H

#include <stdint.h>

enum { GL_STRAGGLAR_MOST = 64 }; /* members of a group: a set of them, or of chunks, is a word */

/* Of a chunk in a round. In round r < n - 1 member r and the straggler swap chunk r, a partial sum against a contribution; all
 * else is final. */
typedef struct {
    uint8_t round, from, to, chunk;
} gl_transfer;

/* All n (n - 1) transfers among n members, the last of which is the straggler, by rounds; in each a member sends at most one
 * chunk and receives at most one. Returns the number of rounds: n - 2 + log2 n, rounded up, for nearly all n; 0 if n is less
 * than 2 or above GL_STRAGGLAR_MOST. */
unsigned gl_stragglar_schedule(unsigned n, gl_transfer *transfers);

#endif
