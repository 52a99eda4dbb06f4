/* SPDX-License-Identifier: Apache-2.0
 * A data plane as it is set up, and changed and asked while packets are forwarded. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "dataplane/host.h"
#include "ports/events.h"
#include "ports/setup.h"

gl_dataplane *gl_dataplane_new(gl_lock *lock, uint32_t frame_size, uint64_t memory, uint64_t coalesce, uint64_t seed,
                               int event_fd) {
    gl_dataplane *dp = calloc(1, sizeof *dp);
    if (!dp) {
        return NULL;
    }
    dp->shared.host = gl_ports_host;
    dp->lock = lock;
    dp->shared.frame_size = frame_size;
    dp->shared.pool.packet_size = (sizeof(gl_packet) + GL_HEADROOM + dp->shared.frame_size + 63) & ~(size_t)63;
    dp->shared.pool.limit = memory;
    dp->coalesce = coalesce;
    dp->seed = seed;
    dp->shared.event_fd = event_fd;
    dp->shared.rests = malloc((size_t)GL_BATCH * GL_LONGEST);
    dp->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!dp->shared.rests || dp->wake_fd < 0) {
        if (dp->wake_fd >= 0) {
            close(dp->wake_fd);
        }
        free(dp->shared.rests);
        free(dp);
        return NULL;
    }
    return dp;
}

void gl_dataplane_free(gl_dataplane *dp) {
    for (uint32_t i = 0; i < dp->count; i++) {
        gl_port_free(&dp->shared, dp->list[i]);
    }
    gl_pool_clear(&dp->shared.pool);
    gl_store_clear(&dp->shared.store);
    close(dp->wake_fd);
    free(dp->shared.rests);
    free(dp);
}

void gl_port_link(gl_dataplane *dp, uint32_t number, uint32_t up) {
    gl_acquire(dp->lock);
    gl_port *port = dp->ports[number];
    if (port && port->stats.up != up) {
        port->stats.up = up;
        port->reported &= (uint8_t)~(1u << (up ? GL_EVENT_DOWN : GL_EVENT_UP));
        gl_report(&dp->shared, port, up ? GL_EVENT_UP : GL_EVENT_DOWN, up ? 0 : ENETDOWN, 0);
        gl_tell_program(dp, number);
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
        gl_port_free(&dp->shared, port);
    } else {
        port->epoch = dp->epoch;
        gl_port_apply(&dp->shared, port, 0, config);
        dp->ports[number] = dp->list[dp->count++] = port;
        dp->generation++;
        gl_tell_program(dp, number);
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
        out->queues[i].depth = (gl_counter){port->queues[i].packets, port->queues[i].bytes};
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
    gl_tell_program(dp, number);
    gl_port_empty(&dp->shared, port);
    statistics(port, last);
    gl_port_free(&dp->shared, port);
    gl_release(dp->lock);
    gl_wake(dp);
}

void gl_port_configure(gl_dataplane *dp, uint32_t number, uint64_t at, gl_port_config config) {
    gl_acquire(dp->lock);
    gl_port_apply(&dp->shared, dp->ports[number], at, config);
    gl_tell_program(dp, number);
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
    port->reported = 0;
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
    dp->shared.tracer = NULL;
    dp->shared.settling = 1;
    for (uint32_t i = 0; i < dp->count; i++) {
        gl_settle(dp, dp->list[i]);
    }
    dp->shared.settling = 0;
    dp->process = process;
    dp->state = state;
    for (uint32_t number = 0; number < GL_DROP_PORT; number++) {
        gl_tell_program(dp, number);
    }
    gl_release(dp->lock);
}

void gl_dataplane_trace(gl_dataplane *dp, gl_process *traced, gl_tracer *tracer, uint32_t port) {
    gl_acquire(dp->lock);
    dp->traced = traced;
    dp->shared.tracer = tracer;
    dp->shared.trace_port = port;
    dp->shared.trace_first = dp->shared.trace_last + 1;
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

void gl_epoch(gl_dataplane *dp, uint64_t epoch) {
    dp->epoch = epoch;
    for (uint32_t i = 0; i < dp->count; i++) {
        dp->list[i]->epoch = epoch;
    }
}
