/* SPDX-License-Identifier: Apache-2.0
 * What a program asks of its surroundings: the only calls upwards. A data plane with ports answers them, or, where
 * there are no ports, program/alone.c. */
#ifndef GL_HOST_H
#define GL_HOST_H

#include <stddef.h>

#include "packets/api.h"

/* What becomes of a packet that is to leave at a port. */
typedef enum {
    GL_NOW,                  /* it goes through egress at once, and then to `emit` or `discard` */
    GL_WAITS,                /* the program gets it again when it leaves its queue */
    GL_GONE                  /* it was dropped */
} gl_admission;

struct gl_host {
    /* A copy that has what follows `offset`, and GL_HEADROOM in front; NULL for want of memory, or if it is too long. */
    gl_packet *(*copy)(gl_host *host, const gl_packet *packet, uint32_t offset);
    /* Other packets that wait where this one is to leave. */
    uint32_t (*depth)(gl_host *host, const gl_packet *packet);
    /* Between ingress and egress: `due`, `size`, `out` and `queue` are set. If it waits, `bytes` at `state` are kept in a
     * block of `room`, which is always the same. */
    gl_admission (*enqueue)(gl_host *host, gl_packet *packet, const void *state, size_t bytes, size_t room);
    void (*emit)(gl_host *host, gl_packet *packet);
    /* `by_program`: a decision of the program, rather than the end of a packet that was copied. */
    void (*discard)(gl_host *host, gl_packet *packet, int by_program);
    gl_tracer *tracer;       /* NULL: nobody looks */
};

#endif
