/* SPDX-License-Identifier: Apache-2.0
 * What Python sees of the ports and the program between them. */
#ifndef GL_DATAPLANE_API_H
#define GL_DATAPLANE_API_H

#include "packets/api.h"
#include "ports/api.h"
#include "program/api.h"

typedef struct gl_dataplane gl_dataplane;

/* `frame_size` is the longest frame of any port in bytes, with a VLAN tag; `memory` bounds the packet buffers in bytes;
 * packets are taken in at least `coalesce` ns after those before them, unless a socket holds more than one batch;
 * events are written to `event_fd` (non-blocking). NULL for want of memory or descriptors. */
gl_dataplane *gl_dataplane_new(gl_lock *lock, uint32_t frame_size, uint64_t memory, uint64_t coalesce, uint64_t seed,
                               int event_fd);
void gl_dataplane_free(gl_dataplane *dp);
/* `fd` stays the caller's; `frame_limit` is the longest frame in bytes, at most the data plane's. Returns 0, or -1 for
 * want of memory or if the number is taken. */
int gl_port_add(gl_dataplane *dp, uint32_t number, uint32_t kind, int fd, uint32_t frame_limit, gl_port_config config);
/* Drops what waits at the port; `last` gets its final counts. Its descriptor may be closed from then on. */
void gl_port_remove(gl_dataplane *dp, uint32_t number, gl_port_stats *last);
/* Whether the interface behind it has a carrier. */
void gl_port_link(gl_dataplane *dp, uint32_t number, uint32_t up);
/* `at`: ns of CLOCK_MONOTONIC. What the link is busy with then goes on at the new rate. */
void gl_port_configure(gl_dataplane *dp, uint32_t number, uint64_t at, gl_port_config config);
/* Of `count` ports at one and the same moment. Number GL_PORTS: of what came from no port, from the controller. */
void gl_port_statistics(gl_dataplane *dp, uint32_t count, const uint32_t *numbers, gl_port_stats *out);
void gl_port_clear(gl_dataplane *dp, uint32_t number);
/* The longest time in ns that packets have waited for a change of tables or ports; `forget`: counted anew from now on. */
uint64_t gl_longest_wait(gl_dataplane *dp, uint32_t forget);
/* Processes a frame as if it came from a port now, whether or not there is one. -1 if it is too long or memory is out. */
int gl_inject(gl_dataplane *dp, uint32_t port, const uint8_t *frame, uint32_t length);
/* NULL: packets are dropped until there is a program. What waits in queues goes through the old one's egress now, and
 * keeps its place. */
void gl_dataplane_program(gl_dataplane *dp, gl_process *process, gl_state *state);
/* Puts packets of one port, or of all (GL_PORTS), through `traced`, the same program compiled for tracing, until
 * gl_dataplane_program or a call with NULL. The tracer must stay until then. */
void gl_dataplane_trace(gl_dataplane *dp, gl_process *traced, gl_tracer *tracer, uint32_t port);
/* Moves the events out, and forgets them; how many words. `lost` gets the number of those that found no room. */
uint32_t gl_trace_take(gl_dataplane *dp, gl_tracer *tracer, uint64_t *out, uint32_t *lost);
/* Forwards until gl_stop, which may be called from any thread. Returns 0, or an errno. */
int gl_run(gl_dataplane *dp);
/* Takes no more packets in, and ends when all that wait have left, after `patience` ns at the latest. */
void gl_stop(gl_dataplane *dp, uint64_t patience);
/* Packets that wait in queues and on links. */
uint64_t gl_waiting(gl_dataplane *dp);

/* Instead of gl_run, with ports that are files: a frame enters a port at a time in ns since `epoch`, never earlier than
 * the one before it; then what is left departs. gl_finish returns 0, or an errno of writing. */
void gl_epoch(gl_dataplane *dp, uint64_t epoch);
void gl_feed(gl_dataplane *dp, uint32_t port, uint64_t now, const uint8_t *frame, uint32_t length);
int gl_finish(gl_dataplane *dp);

#endif
