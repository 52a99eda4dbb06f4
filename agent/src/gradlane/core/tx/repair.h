/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What a sender does when it hears nothing.
 */
#ifndef GRADLANE_REPAIR_H
#define GRADLANE_REPAIR_H

#include "tx/tx.h"

/* A PROBE is due when the receiver should have answered. */
void arm_probe(tx *x, target *t, uint64_t now);
/* A full flow of which nothing was heard: its receiver is asked what has come. */
void ask_receiver(tx *x, lane *l, uint64_t now);

#endif
