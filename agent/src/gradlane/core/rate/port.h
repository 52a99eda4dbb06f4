/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A host's link as all engines on it share it: what goes out is paced in sum, and what comes in is divided among the jobs
 * by their weights. Its rate is the fastest and its queue the shortest that an engine on it was configured with.
 */
#ifndef GRADLANE_PORT_H
#define GRADLANE_PORT_H

#include <stdint.h>

typedef struct gl_port gl_port;

/* `receive_bytes`: of payload that the sockets hold for sure while nobody reads them; senders are told to have no more in
 * flight. 0: no bound. NULL if memory is out. */
gl_port *gl_port_new(uint64_t receive_bytes);
/* After the last engine on it. */
void gl_port_free(gl_port *port);

#endif
