/* SPDX-License-Identifier: Apache-2.0
 * Frames from the ports' sockets, as packets in order of time. */
#ifndef GL_RECEIVE_H
#define GL_RECEIVE_H

#include "ports/port.h"
#include "ports/shared.h"

/* Fills the port's list of arrived packets if it is empty, and sets port->stats.up to whether the interface is there.
 * `offset`: of the clock of the kernel's times to ours, ns. */
void gl_port_receive(gl_shared *shared, gl_port *port, uint64_t offset, uint64_t now);

#endif
