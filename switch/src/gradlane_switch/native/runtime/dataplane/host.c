/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/host.h"

#include <string.h>

#include "base/counter.h"
#include "packets/trace.h"
#include "ports/queues.h"
#include "ports/send.h"

/* ---- What the program calls ---- */

/* Counts for the port that a packet came from. */
#define COUNT_ORIGIN(dp, packet, what)                                                     \
    do {                                                                                   \
        gl_port *origin = (dp)->ports[(packet)->port];                                     \
        gl_tally(&(origin ? &origin->stats : &(dp)->elsewhere)->what, (packet)->length);   \
    } while (0)

static gl_packet *host_copy(gl_host *host, const gl_packet *packet, uint32_t offset) {
    gl_dataplane *dp = (gl_dataplane *)host;
    uint32_t length = packet->length - offset;
    gl_packet *copy = length <= dp->shared.frame_size ? gl_pool_get(&dp->shared.pool) : NULL;
    if (!copy) {
        COUNT_ORIGIN(dp, packet, uncopied);
        return NULL;
    }
    COUNT_ORIGIN(dp, packet, copies);
    copy->port = packet->port;
    copy->origin = packet->origin;
    copy->part = packet->part;
    copy->traced = packet->traced;
    copy->length = length;
    memcpy(copy->data, packet->data + offset, length);
    return copy;
}

/* Where a packet is to leave; NULL if there is no such port. */
static gl_port *port_of(const gl_dataplane *dp, const gl_packet *packet) {
    return packet->out < GL_PORTS ? dp->ports[packet->out] : NULL;
}

static uint32_t host_depth(gl_host *host, const gl_packet *packet) {
    const gl_port *port = port_of((gl_dataplane *)host, packet);
    return port ? (uint32_t)port->queues[packet->queue].packets - (packet->queued == GL_IN_QUEUE) : 0;
}

/* A port that is not there, or down, has no queue: what goes there may still be recirculated. */
static gl_admission host_enqueue(gl_host *host, gl_packet *packet, const void *state, size_t bytes, size_t room) {
    gl_dataplane *dp = (gl_dataplane *)host;
    gl_port *port = port_of(dp, packet);
    return port && port->config.up ? gl_port_enqueue(&dp->shared, port, packet, state, bytes, room) : GL_NOW;
}

static void host_discard(gl_host *host, gl_packet *packet, int by_program) {
    gl_dataplane *dp = (gl_dataplane *)host;
    if (by_program) {
        COUNT_ORIGIN(dp, packet, program);
    } else {
        COUNT_ORIGIN(dp, packet, replaced);
    }
    if (packet->queued) {
        gl_tally(&dp->ports[packet->out]->stats.queues[packet->queue].ended, packet->size);
    }
    if (packet->queued == GL_IN_QUEUE) {
        gl_port_unlink(dp->ports[packet->out], packet);
    }
    gl_pool_put(&dp->shared.pool, packet);
}

static void host_emit(gl_host *host, gl_packet *packet) {
    gl_dataplane *dp = (gl_dataplane *)host;
    gl_port *port = port_of(dp, packet);
    if (!port) {
        GL_NOTE(dp->shared.host.tracer, GL_TRACE_DROPPED, GL_DROP_NO_PORT, packet->out, packet->queue);
        COUNT_ORIGIN(dp, packet, no_port);
        gl_pool_put(&dp->shared.pool, packet);
    } else if (packet->length < port->io->shortest) {
        GL_NOTE(dp->shared.host.tracer, GL_TRACE_DROPPED, GL_DROP_RUNT, packet->out, packet->queue);
        host_discard(host, packet, 1);
    } else if (!port->config.up) {
        GL_NOTE(dp->shared.host.tracer, GL_TRACE_DROPPED, GL_DROP_DOWN, packet->out, packet->queue);
        gl_tally(&port->stats.tx_down, packet->length);
        gl_pool_put(&dp->shared.pool, packet);
    } else if (packet->queued == GL_IN_QUEUE) {
        packet->queued = GL_PASSED_QUEUE;
    } else if (dp->shared.settling) {
        gl_port_append(port, packet);
        gl_expect(&dp->shared, port->free_at);
    } else {
        gl_port_send(&dp->shared, port, packet);
    }
}

const gl_host gl_ports_host = {host_copy, host_depth, host_enqueue, host_emit, host_discard, NULL};

/* ---- Running the program ---- */

void gl_process_packet(gl_dataplane *dp, gl_packet *packet, uint64_t at) {
    dp->shared.clock = at > dp->shared.clock ? at : dp->shared.clock;
    if (!dp->process) {
        dp->shared.host.discard(&dp->shared.host, packet, 1);
        return;
    }
    if (gl_port_is_traced(&dp->shared, packet->port) && !packet->kept) {
        packet->traced = ++dp->shared.trace_last;
    }
    gl_tracer *tracer = dp->shared.host.tracer = gl_tracer_of(&dp->shared, packet);
    (tracer ? dp->traced : dp->process)(dp->state, packet, dp->shared.clock, &dp->shared.host);
    dp->shared.host.tracer = NULL;
}

void gl_depart(gl_dataplane *dp, gl_port *port) {
    gl_packet *packet = gl_port_dequeue(port);
    void *kept = packet->kept;
    if (kept) {
        GL_NOTE(gl_tracer_of(&dp->shared, packet), GL_TRACE_DEQUEUED, packet->traced, port->number, packet->queue,
                port->free_at - packet->due);
        gl_process_packet(dp, packet, port->free_at);
        gl_store_put(&dp->shared.store, kept);
    } else {
        gl_port_send(&dp->shared, port, packet);
    }
}

void gl_settle(gl_dataplane *dp, gl_port *port) {
    for (uint32_t i = 0; i < GL_QUEUES; i++) {
        for (gl_packet *packet = port->queues[i].head, *next; packet; packet = next) {
            next = packet->next;
            void *kept = packet->kept;
            if (kept) {
                packet->queued = GL_IN_QUEUE;
                gl_process_packet(dp, packet, dp->shared.clock);
                gl_store_put(&dp->shared.store, kept);
            }
        }
    }
}

void gl_tell_program(gl_dataplane *dp, uint32_t number) {
    const gl_port *port = dp->ports[number];
    if (dp->state) {
        gl_port_state(dp->state, number, port && port->stats.up && port->config.up);
    }
}
