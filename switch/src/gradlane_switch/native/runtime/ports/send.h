/* SPDX-License-Identifier: Apache-2.0
 * From a port's queues onto its link, and from there to its interface. */
#ifndef GL_SEND_H
#define GL_SEND_H

#include "ports/port.h"
#include "ports/shared.h"

/* Puts a packet on the link; the wire is free. */
void gl_port_send(gl_shared *shared, gl_port *port, gl_packet *packet);
/* Hands what the link delivers until `now` to the interface. */
void gl_port_deliver(gl_shared *shared, gl_port *port, uint64_t now);
/* Hands what is leaving to the interface. */
void gl_port_flush(gl_shared *shared, gl_port *port);

#endif
