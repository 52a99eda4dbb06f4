/* SPDX-License-Identifier: Apache-2.0
 * Counting packets and their bytes. */
#ifndef GL_COUNTER_H
#define GL_COUNTER_H

#include "base/api.h"
#include "base/inline.h"

GL_INLINE void gl_tally(gl_counter *counter, uint32_t length) {
    counter->packets++;
    counter->bytes += length;
}

#endif
