/* SPDX-License-Identifier: Apache-2.0
 * The program between the ports: its runs, and what it calls. */
#ifndef GL_DATAPLANE_HOST_H
#define GL_DATAPLANE_HOST_H

#include "dataplane/dataplane.h"

/* What the program calls, of the data plane that has it. */
extern const gl_host gl_ports_host;

/* Runs the program on a packet that came in, or left its queue, at a time in ns. */
void gl_process_packet(gl_dataplane *dp, gl_packet *packet, uint64_t at);
/* Takes the packet from its queue whose turn it is, through egress, to `gl_port_send`. */
void gl_depart(gl_dataplane *dp, gl_port *port);
/* Takes what waits through the egress of the program, where it waits. */
void gl_settle(gl_dataplane *dp, gl_port *port);
/* Tells the program whether there is a port of that number, and it is up. The caller has the lock. */
void gl_tell_program(gl_dataplane *dp, uint32_t number);

#endif
