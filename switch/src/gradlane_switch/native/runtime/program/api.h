/* SPDX-License-Identifier: Apache-2.0
 * What Python sees of a program, and its run without ports. */
#ifndef GL_PROGRAM_API_H
#define GL_PROGRAM_API_H

#include "packets/api.h"
#include "state/api.h"

/* The program: parses the packet that came in, or goes on with one that has left its queue (`kept` is not NULL), runs
 * the pipelines, and hands what leaves, and what is left over, to the host. It does not free what was kept. */
typedef void gl_process(gl_state *state, gl_packet *packet, uint64_t now, gl_host *host);

/* ---- Without ports: one packet in, its copies out ---- */

typedef struct {
    uint32_t port;
    uint32_t queue;
    uint32_t length;
    uint32_t offset;       /* of the frame in the output buffer */
} gl_sent;

/* Returns the number of packets that left, at most `capacity` of them kept; -1 for want of memory or output space.
 * `tracer` may be NULL. */
int gl_process_one(gl_process *process, gl_state *state, uint32_t port, const uint8_t *frame, uint32_t length,
                   uint64_t now, gl_sent *sent, uint32_t capacity, uint8_t *out, uint32_t out_size, gl_tracer *tracer);

#endif
