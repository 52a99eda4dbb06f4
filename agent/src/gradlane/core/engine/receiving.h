/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How an engine gets datagrams without a copy: many at once, in buffers that it may hold.
 */
#ifndef GRADLANE_RECEIVING_H
#define GRADLANE_RECEIVING_H

#include <stdbool.h>

#include "base/buffers.h"
#include "engine/engine.h"

/* What comes may be held if it is in these buffers; in others, if this is called again, it is copied. */
void receive_into(gl_engine *engine, buffers *buffers);
/* As gl_receive, of datagrams that lie behind each other, of `segment` bytes each but the last, which may be shorter; `segment`
 * is not 0 unless `bytes` is. `held`: they are in a buffer that may be held from now on, and changed, if there is another one to
 * spare. */
void receive_train(gl_engine *engine, const uint8_t *datagrams, uint32_t bytes, uint32_t segment, bool congested, bool held,
                   uint64_t now);

#endif
