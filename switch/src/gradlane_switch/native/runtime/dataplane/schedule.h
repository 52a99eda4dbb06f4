/* SPDX-License-Identifier: Apache-2.0
 * What happens at the ports, in order of time. */
#ifndef GL_SCHEDULE_H
#define GL_SCHEDULE_H

#include "dataplane/dataplane.h"

/* Does what happens by `now` without anything coming in: packets leave queues and arrive from the hosts' links, over
 * all ports in order of time. Each may make others that wait or leave. */
void gl_catch_up(gl_dataplane *dp, uint64_t now);
/* Puts a packet that has arrived at a port on the link from its host. */
void gl_from_host(gl_dataplane *dp, gl_port *port, gl_packet *packet);
/* Processes received packets in order of arrival. A port whose batch was full may have more in its socket, so others'
 * packets that are later than its last wait for the next round; and so does what would take too long. Returns the time
 * up to which none can be missing. */
uint64_t gl_process_arrived(gl_dataplane *dp);
/* Hands what is leaving, at all ports, to the interfaces; and before that, does all that happens by `now`. */
void gl_flush_all(gl_dataplane *dp);
void gl_advance_all(gl_dataplane *dp, uint64_t now);
/* When there is something to do next: a departure, a delivery, or a packet that is already here. Or UINT64_MAX. */
uint64_t gl_next_event(const gl_dataplane *dp);

#endif
