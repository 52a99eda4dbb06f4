/* SPDX-License-Identifier: Apache-2.0
 * The ports and the program between them: what the program calls, and what changes while packets are forwarded. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ports/port.h"

enum { SHORTEST_FRAME = 14 };

void gl_wake(const gl_dataplane *dp) {
    const uint64_t one = 1;
    /* This fails only when the counter is full, and then the thread wakes anyway. */
    (void)!write(dp->wake_fd, &one, sizeof one);
}

/* ---- What the program calls ---- */

/* Counts for the port that a packet came from. */
#define COUNT_ORIGIN(dp, packet, what)                                                    \
    do {                                                                                  \
        gl_port *origin = (dp)->ports[(packet)->port];                                    \
        gl_note(&(origin ? &origin->stats : &(dp)->elsewhere)->what, (packet)->length);   \
    } while (0)

static gl_packet *host_copy(gl_host *host, const gl_packet *packet, uint32_t offset) {
    gl_dataplane *dp = (gl_dataplane *)host;
    uint32_t length = packet->length - offset;
    gl_packet *copy = length <= dp->frame_size ? gl_pool_get(&dp->pool) : NULL;
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
static gl_admission host_enqueue(gl_host *host, gl_packet *packet, const void *state, size_t bytes) {
    gl_dataplane *dp = (gl_dataplane *)host;
    gl_port *port = port_of(dp, packet);
    return port && port->config.up ? gl_port_enqueue(dp, port, packet, state, bytes) : GL_NOW;
}

static void host_discard(gl_host *host, gl_packet *packet, int by_program) {
    gl_dataplane *dp = (gl_dataplane *)host;
    if (by_program) {
        COUNT_ORIGIN(dp, packet, program);
    } else {
        COUNT_ORIGIN(dp, packet, replaced);
    }
    if (packet->queued) {
        gl_note(&dp->ports[packet->out]->stats.queues[packet->queue].ended, packet->size);
    }
    if (packet->queued == GL_IN_QUEUE) {
        gl_port_unlink(dp->ports[packet->out], packet);
    }
    gl_pool_put(&dp->pool, packet);
}

static void host_emit(gl_host *host, gl_packet *packet) {
    gl_dataplane *dp = (gl_dataplane *)host;
    gl_port *port = port_of(dp, packet);
    if (!port) {
        GL_NOTE(dp->host.tracer, GL_TRACE_DROPPED, GL_DROP_NO_PORT, packet->out, packet->queue);
        COUNT_ORIGIN(dp, packet, no_port);
        gl_pool_put(&dp->pool, packet);
    } else if (packet->length < SHORTEST_FRAME) {
        GL_NOTE(dp->host.tracer, GL_TRACE_DROPPED, GL_DROP_RUNT, packet->out, packet->queue);
        host_discard(host, packet, 1);
    } else if (!port->config.up) {
        GL_NOTE(dp->host.tracer, GL_TRACE_DROPPED, GL_DROP_DOWN, packet->out, packet->queue);
        gl_note(&port->stats.tx_down, packet->length);
        gl_pool_put(&dp->pool, packet);
    } else if (packet->queued == GL_IN_QUEUE) {
        packet->queued = GL_PASSED_QUEUE;
    } else if (dp->settling) {
        gl_port_append(port, packet);
        gl_expect(dp, port->free_at);
    } else {
        gl_port_send(dp, port, packet);
    }
}

void gl_process_packet(gl_dataplane *dp, gl_packet *packet, uint64_t at) {
    dp->clock = at > dp->clock ? at : dp->clock;
    if (!dp->process) {
        dp->host.discard(&dp->host, packet, 1);
        return;
    }
    if (dp->tracer && !packet->kept && (dp->trace_port == GL_PORTS || dp->trace_port == packet->port)) {
        packet->traced = ++dp->trace_last;
    }
    gl_tracer *tracer = dp->host.tracer = gl_tracer_of(dp, packet);
    (tracer ? dp->traced : dp->process)(dp->state, packet, dp->clock, &dp->host);
    dp->host.tracer = NULL;
}

/* ---- Set-up ---- */

gl_dataplane *gl_dataplane_new(gl_lock *lock, uint32_t frame_size, uint64_t memory, uint64_t coalesce, uint64_t seed,
                               int event_fd) {
    gl_dataplane *dp = calloc(1, sizeof *dp);
    if (!dp) {
        return NULL;
    }
    dp->host = (gl_host){host_copy, host_depth, host_enqueue, host_emit, host_discard, NULL};
    dp->lock = lock;
    dp->frame_size = frame_size;
    dp->pool.packet_size = (sizeof(gl_packet) + GL_HEADROOM + dp->frame_size + 63) & ~(size_t)63;
    dp->pool.limit = memory;
    dp->coalesce = coalesce;
    dp->seed = seed;
    dp->event_fd = event_fd;
    dp->rests = malloc((size_t)GL_BATCH * GL_LONGEST);
    dp->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!dp->rests || dp->wake_fd < 0) {
        if (dp->wake_fd >= 0) {
            close(dp->wake_fd);
        }
        free(dp->rests);
        free(dp);
        return NULL;
    }
    return dp;
}

void gl_dataplane_free(gl_dataplane *dp) {
    for (uint32_t i = 0; i < dp->count; i++) {
        gl_port_free(dp, dp->list[i]);
    }
    gl_pool_clear(&dp->pool);
    gl_store_clear(&dp->store);
    close(dp->wake_fd);
    free(dp->rests);
    free(dp);
}

void gl_port_told(gl_dataplane *dp, uint32_t number) {
    const gl_port *port = dp->ports[number];
    if (dp->state) {
        gl_port_state(dp->state, number, port && port->stats.up && port->config.up);
    }
}

void gl_port_link(gl_dataplane *dp, uint32_t number, uint32_t up) {
    gl_acquire(dp->lock);
    gl_port *port = dp->ports[number];
    if (port && port->stats.up != up) {
        port->stats.up = up;
        port->told &= (uint8_t)~(1u << (up ? GL_EVENT_DOWN : GL_EVENT_UP));
        gl_tell(dp, port, up ? GL_EVENT_UP : GL_EVENT_DOWN, up ? 0 : ENETDOWN, 0);
        gl_port_told(dp, number);
    }
    gl_release(dp->lock);
}

int gl_port_add(gl_dataplane *dp, uint32_t number, uint32_t kind, int fd, uint32_t frame_limit, gl_port_config config) {
    gl_port *port = number < GL_DROP_PORT ? gl_port_new(number, kind, fd, frame_limit, dp->seed) : NULL;
    if (!port) {
        return -1;
    }
    gl_acquire(dp->lock);
    int taken = dp->ports[number] != NULL;
    if (taken) {
        gl_port_free(dp, port);
    } else {
        port->epoch = dp->epoch;
        gl_port_apply(dp, port, 0, config);
        dp->ports[number] = dp->list[dp->count++] = port;
        dp->generation++;
        gl_port_told(dp, number);
    }
    gl_release(dp->lock);
    gl_wake(dp);
    return taken ? -1 : 0;
}

static void statistics(gl_port *port, gl_port_stats *out) {
    port->stats.socket_drops += port->io->drops(port);
    *out = port->stats;
    out->up = port->stats.up && port->config.up;
    out->depth = port->depth;
    out->tx_impaired = port->tx_link.statistics;
    out->rx_impaired = port->rx_link.statistics;
    out->tx_impaired.in_flight = port->tx_link.count;
    out->rx_impaired.in_flight = port->rx_link.count + port->arrived_count;
    for (int i = 0; i < GL_QUEUES; i++) {
        out->queues[i].depth = (gl_traffic){port->queues[i].packets, port->queues[i].bytes};
    }
}

void gl_port_remove(gl_dataplane *dp, uint32_t number, gl_port_stats *last) {
    gl_acquire(dp->lock);
    uint32_t i = 0;
    while (dp->list[i]->number != number) {
        i++;
    }
    gl_port *port = dp->list[i];
    memmove(&dp->list[i], &dp->list[i + 1], sizeof *dp->list * (dp->count - i - 1));
    dp->count--;
    dp->ports[number] = NULL;
    dp->generation++;
    gl_port_told(dp, number);
    gl_port_empty(dp, port);
    statistics(port, last);
    gl_port_free(dp, port);
    gl_release(dp->lock);
    gl_wake(dp);
}

void gl_port_configure(gl_dataplane *dp, uint32_t number, uint64_t at, gl_port_config config) {
    gl_acquire(dp->lock);
    gl_port_apply(dp, dp->ports[number], at, config);
    gl_port_told(dp, number);
    gl_release(dp->lock);
    /* The thread may sleep towards a departure that the new rate brings forward. */
    gl_wake(dp);
}

void gl_port_statistics(gl_dataplane *dp, uint32_t count, const uint32_t *numbers, gl_port_stats *out) {
    gl_acquire(dp->lock);
    for (uint32_t i = 0; i < count; i++) {
        if (numbers[i] == GL_PORTS) {
            out[i] = dp->elsewhere;
        } else {
            statistics(dp->ports[numbers[i]], &out[i]);
        }
    }
    gl_release(dp->lock);
}

void gl_port_clear(gl_dataplane *dp, uint32_t number) {
    gl_acquire(dp->lock);
    if (number == GL_PORTS) {
        dp->elsewhere = (gl_port_stats){0};
        gl_release(dp->lock);
        return;
    }
    gl_port *port = dp->ports[number];
    port->io->drops(port);
    port->stats = (gl_port_stats){.up = port->stats.up, .depth_max = port->depth};
    port->tx_link.statistics = port->rx_link.statistics = (gl_impaired){0};
    port->told = 0;
    gl_release(dp->lock);
}

uint64_t gl_longest_wait(gl_dataplane *dp, uint32_t forget) {
    gl_acquire(dp->lock);
    uint64_t longest = dp->longest_wait;
    if (forget) {
        dp->longest_wait = 0;
    }
    gl_release(dp->lock);
    return longest;
}

void gl_dataplane_program(gl_dataplane *dp, gl_process *process, gl_state *state) {
    gl_acquire(dp->lock);
    dp->tracer = NULL;
    dp->settling = 1;
    for (uint32_t i = 0; i < dp->count; i++) {
        gl_port_settle(dp, dp->list[i]);
    }
    dp->settling = 0;
    dp->process = process;
    dp->state = state;
    for (uint32_t number = 0; number < GL_DROP_PORT; number++) {
        gl_port_told(dp, number);
    }
    gl_release(dp->lock);
}

void gl_dataplane_trace(gl_dataplane *dp, gl_process *traced, gl_tracer *tracer, uint32_t port) {
    gl_acquire(dp->lock);
    dp->traced = traced;
    dp->tracer = tracer;
    dp->trace_port = port;
    dp->trace_first = dp->trace_last + 1;
    gl_release(dp->lock);
}

uint32_t gl_trace_take(gl_dataplane *dp, gl_tracer *tracer, uint64_t *out, uint32_t *lost) {
    gl_acquire(dp->lock);
    uint32_t words = tracer->used;
    memcpy(out, tracer->words, words * sizeof *out);
    *lost = tracer->lost;
    tracer->used = tracer->lost = 0;
    gl_release(dp->lock);
    return words;
}

uint64_t gl_waiting(gl_dataplane *dp) {
    uint64_t packets = 0;
    gl_acquire(dp->lock);
    for (uint32_t i = 0; i < dp->count; i++) {
        const gl_port *port = dp->list[i];
        packets += port->rx_link.count + port->tx_link.count + port->arrived_count;
        for (int queue = 0; queue < GL_QUEUES; queue++) {
            packets += port->queues[queue].packets;
        }
    }
    gl_release(dp->lock);
    return packets;
}
