/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Messages that are in flight, and those that wait for a number.
 */
#ifndef GRADLANE_QUEUE_H
#define GRADLANE_QUEUE_H

#include "tx/tx.h"

/* NULL: it is not in flight; it does not go to that rank. */
tx_message *find_sent(tx *x, uint32_t id);
target *find_target(tx_message *m, unsigned rank);
/* Sees to it that on_window_due is called while a message with a budget waits for a number. */
void watch_window(tx *x, uint64_t now);

#endif
