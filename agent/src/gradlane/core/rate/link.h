/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What a host's link carries, as the job sees it.
 */
#ifndef GRADLANE_LINK_H
#define GRADLANE_LINK_H

#include <stdint.h>

enum { GL_LINK_WINDOWS = 32 }; /* that are remembered, of each direction */

/* Bytes per us on the wire in the latest windows of time in which slices came, and went, without a pause; in no order. The
 * first window after a pause is none of them: a port that rested may send what it saved up. */
typedef struct {
    uint32_t received_count, sent_count;
    double received[GL_LINK_WINDOWS], sent[GL_LINK_WINDOWS];
} gl_link;

#endif
