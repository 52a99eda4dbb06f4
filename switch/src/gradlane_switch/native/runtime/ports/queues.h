/* SPDX-License-Identifier: Apache-2.0
 * Eight queues that share a byte buffer, and whose turn it is. */
#ifndef GL_QUEUES_H
#define GL_QUEUES_H

#include "ports/port.h"
#include "ports/shared.h"

/* Queues a packet unless it can leave now; or drops it, or others in its place. See gl_host. */
gl_admission gl_port_enqueue(gl_shared *shared, gl_port *port, gl_packet *packet, const void *state, size_t bytes,
                             size_t room);
/* Takes the packet out of its queue whose turn it is; there is one. */
gl_packet *gl_port_dequeue(gl_port *port);
/* Appends a packet that has been through egress to its queue, or takes one out. */
void gl_port_append(gl_port *port, gl_packet *packet);
void gl_port_unlink(gl_port *port, gl_packet *packet);
/* Drops what waits: all of it, or what the buffer has become too small for. */
void gl_port_flush_queues(gl_shared *shared, gl_port *port);
void gl_port_shrink_queues(gl_shared *shared, gl_port *port);

#endif
