/* SPDX-License-Identifier: Apache-2.0
 * What all ports of a data plane share. */
#ifndef GL_SHARED_H
#define GL_SHARED_H

#include "packets/buffers.h"
#include "packets/host.h"
#include "wire/messages.h"

typedef struct {
    gl_host host;            /* what the program calls; its tracer gets what happens to the packet in hand */
    gl_pool pool;
    gl_store store;
    uint32_t frame_size;     /* bytes of the longest frame of any port */
    int settling;            /* the program is being replaced: nothing new waits for egress */
    uint64_t clock;          /* ns: time of what happens now; never goes back */
    uint64_t quiet;          /* ns: until then nothing leaves a queue, and nothing arrives from a link */
    gl_tracer *tracer;       /* gets what happens to packets from `trace_port`; NULL: none are traced */
    uint32_t trace_port;     /* GL_PORTS: all */
    uint64_t trace_first, trace_last;   /* numbers of packets in this trace */
    int event_fd;
    uint32_t origins;        /* how many frames have been cut */
    uint8_t *rests;          /* of the messages of the inbox, GL_LONGEST bytes each */
    gl_inbox inbox;
    gl_outbox outbox;
} gl_shared;

/* Says that something will leave a queue or arrive from a link at a time in ns. */
static inline void gl_expect(gl_shared *shared, uint64_t at) {
    shared->quiet = at < shared->quiet ? at : shared->quiet;
}

/* Whether packets that come from a port now are traced. */
static inline int gl_port_is_traced(const gl_shared *shared, uint32_t number) {
    return shared->tracer && (shared->trace_port == GL_PORTS || shared->trace_port == number);
}

/* Where a packet's events go; NULL: it is not traced. */
static inline gl_tracer *gl_tracer_of(const gl_shared *shared, const gl_packet *packet) {
    return packet->traced >= shared->trace_first ? shared->tracer : NULL;
}

#endif
