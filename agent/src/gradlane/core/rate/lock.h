/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The lock of a port, which engines of different threads share.
 */
#ifndef GRADLANE_RATE_LOCK_H
#define GRADLANE_RATE_LOCK_H

#include "rate/tenant.h"

static inline void port_lock(gl_port *port) { pthread_mutex_lock(&port->lock); }
static inline void port_unlock(gl_port *port) { pthread_mutex_unlock(&port->lock); }

/* Locks it. Returns `now`, or the later time that another thread has said before: what the port remembers is not to come. */
static inline uint64_t port_enter(gl_port *port, uint64_t now) {
    port_lock(port);
    if (port->clock < now) port->clock = now;
    return port->clock;
}

#endif
