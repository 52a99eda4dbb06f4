/* SPDX-License-Identifier: Apache-2.0
 * Ports as they come, change and go. */
#ifndef GL_PORT_SETUP_H
#define GL_PORT_SETUP_H

#include "ports/port.h"
#include "ports/shared.h"

/* NULL for want of memory. */
gl_port *gl_port_new(uint32_t number, uint32_t kind, int fd, uint32_t frame_limit, uint64_t seed);
void gl_port_apply(gl_shared *shared, gl_port *port, uint64_t at, gl_port_config config);
/* Drops all that waits, in both directions, and counts it. */
void gl_port_empty(gl_shared *shared, gl_port *port);
void gl_port_free(gl_shared *shared, gl_port *port);

#endif
