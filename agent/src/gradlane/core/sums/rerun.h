/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A step that a switch did not complete, completed by the hosts.
 */
#ifndef GRADLANE_RERUN_H
#define GRADLANE_RERUN_H

#include "sums/sums.h"

/* The next piece of what is to be prepared for a step that is done again, if anything is. */
void rerun_work(sums *x, uint64_t now);
/* The event of an operation that does a step again: it gets that step. False: it is of another one. */
bool rerun_took(sums *x, part *p, gl_event *event);

#endif
