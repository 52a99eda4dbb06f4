/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Reminders: what this rank has contributed to slices whose sums it has, sent once more for those who may lack them.
 */
#ifndef GRADLANE_REMIND_H
#define GRADLANE_REMIND_H

#include "sums/stream.h"

/* Of a step that all have begun and not all have completed: from now on its reminders are to be sent. */
void remind(stream *s, uint32_t step);
/* The next one's datagram; NULL: none is to be sent. */
const uint8_t *next_reminder(const stream *s);
/* Takes it, and makes it one. */
const uint8_t *take_reminder(const gl_config *c, stream *s);

#endif
