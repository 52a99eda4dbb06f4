/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A message that comes.
 */
#ifndef GRADLANE_RX_MESSAGE_H
#define GRADLANE_RX_MESSAGE_H

#include "rx/rx.h"

void rx_message_free(job *j, rx_message *m);
/* Whether a slice may be kept, or need not be, where `ahead` others are to be kept before it. */
bool has_room(const job *j, const rx_message *m, uint32_t slice, uint64_t ahead);
uint32_t expected_length(const gl_config *c, const rx_message *m, uint32_t slice); /* 0: not known yet */

/* Every slice has arrived, or its header says that it is lost: nothing of the first pass is in flight any more. */
static inline bool all_seen(const rx_message *m) { return m->received + m->trimmed == m->slices; }

#endif
