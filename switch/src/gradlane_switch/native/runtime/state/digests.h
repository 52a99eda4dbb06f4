/* SPDX-License-Identifier: Apache-2.0
 * What the program learns, for the controller. The caller has the mailbox's lock. */
#ifndef GL_DIGESTS_H
#define GL_DIGESTS_H

#include "state/state.h"

enum { GL_DIGEST_VALUES = 4096 /* of each digest, that wait or are not acknowledged */ };

typedef enum {
    GL_LEARNED_NOTHING,      /* it is known, or nobody wants it */
    GL_LEARNED,              /* it waits beside others */
    GL_LEARNED_NEWS,         /* it is the first that waits, or makes a list full */
    GL_LEARNED_TOO_MUCH      /* there was no room */
} gl_learned;

gl_learned gl_digest_learn(gl_mailbox *mailbox, uint32_t digest, uint64_t now, const uint8_t *value, uint32_t size);
void gl_digests_clear(gl_mailbox *mailbox);

#endif
