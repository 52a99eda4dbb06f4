/* SPDX-License-Identifier: Apache-2.0
 * What the program tells the controller: digests and packets. */
#ifndef GL_MAILBOX_H
#define GL_MAILBOX_H

#include "state/state.h"

void gl_post(gl_state *state, uint32_t kind, uint32_t id, uint64_t now, const uint8_t *bytes, uint32_t length);
/* Returns 0, or -1 for want of memory. */
int gl_mailbox_init(gl_mailbox *mailbox, uint32_t digests);
void gl_mailbox_clear(gl_mailbox *mailbox);

#endif
