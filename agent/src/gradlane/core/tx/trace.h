/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Traces of what is sent.
 */
#ifndef GRADLANE_TRACE_H
#define GRADLANE_TRACE_H

#include "tx/tx.h"

/* Sends one after a slice of a message. */
void trace_send(tx *x, const tx_message *m, uint32_t slice);
/* Those that traces to a rank have taken, the latest first; at most GL_PATHS. Returns their number. */
unsigned trace_paths(const tx *x, unsigned rank, gl_path *paths);

#endif
