/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What a receiver answers: STOP and BITMAP.
 */
#ifndef GRADLANE_ANSWER_H
#define GRADLANE_ANSWER_H

#include "rx/rx.h"

/* `bits`: what of the slices needs not be sent (again). */
void answer(rx *x, const rx_message *m, unsigned kind, const uint64_t *bits);
/* Asks for what is missing, as far as there is memory for it. Returns whether there is for any of it. */
bool ask(rx *x, const rx_message *m);

#endif
