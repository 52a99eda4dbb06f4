/* SPDX-License-Identifier: Apache-2.0
 * Packets are processed in the order of the kernel's receive timestamps over all ports, and queues are drained up to a
 * packet's own time before it is queued. So a thread that was kept off the CPU decides as it would have decided in time;
 * only the delivery is late. */
#include "dataplane/schedule.h"

#include "base/counter.h"
#include "base/time.h"
#include "dataplane/host.h"
#include "packets/trace.h"
#include "ports/send.h"

enum {
    ROUND = 250000,          /* ns that received packets are processed for in one go: who waits for the lock gets it then */
    UNTIMED = 8              /* packets between two looks at the clock */
};

void gl_catch_up(gl_dataplane *dp, uint64_t now) {
    while (dp->shared.quiet <= now) {
        gl_port *first = NULL;
        uint64_t earliest = UINT64_MAX;
        int departs = 0;
        for (uint32_t i = 0; i < dp->count; i++) {
            gl_port *port = dp->list[i];
            uint64_t departure = gl_port_departure(port);
            uint64_t arrival = port->rx_link.count ? port->rx_link.heap[0]->due : UINT64_MAX;
            uint64_t next = departure <= arrival ? departure : arrival;
            if (next < earliest) {
                first = port;
                earliest = next;
                departs = departure <= arrival;
            }
        }
        if (earliest > now) {
            dp->shared.quiet = earliest;
        } else if (departs) {
            gl_depart(dp, first);
        } else {
            gl_process_packet(dp, gl_link_due(&first->rx_link, earliest), earliest);
        }
    }
}

void gl_from_host(gl_dataplane *dp, gl_port *port, gl_packet *packet) {
    uint64_t arrived = packet->due;
    gl_packet *twin;
    switch (gl_link_enter(&port->rx_link, &dp->shared.pool, packet, arrived, &twin)) {
    case GL_LINK_NOW:
        gl_process_packet(dp, packet, arrived);
        if (twin) {
            gl_process_packet(dp, twin, arrived);
        }
        break;
    case GL_LINK_LATER:
        gl_expect(&dp->shared, port->rx_link.heap[0]->due);
        break;
    case GL_LINK_NO_MEMORY:
        gl_tally(&port->stats.rx_no_memory, packet->length);
        gl_pool_put(&dp->shared.pool, packet);
        break;
    case GL_LINK_LOST:
        if (gl_port_is_traced(&dp->shared, port->number)) {
            packet->traced = ++dp->shared.trace_last;
            gl_trace_packet(dp->shared.tracer, packet, arrived);
            GL_NOTE(dp->shared.tracer, GL_TRACE_DROPPED, GL_DROP_RX_LINK);
        }
        gl_pool_put(&dp->shared.pool, packet);
        break;
    }
}

uint64_t gl_process_arrived(gl_dataplane *dp) {
    gl_port *active[GL_PORTS];
    uint32_t count = 0;
    uint64_t horizon = UINT64_MAX;
    for (uint32_t i = 0; i < dp->count; i++) {
        gl_port *port = dp->list[i];
        if (port->arrived) {
            active[count++] = port;
            if (port->more && port->last_arrived->due < horizon) {
                horizon = port->last_arrived->due;
            }
        }
    }
    uint64_t end = gl_clock(CLOCK_MONOTONIC) + ROUND;
    for (uint32_t done = 1; count; done++) {
        uint32_t first = 0;
        for (uint32_t i = 1; i < count; i++) {
            if (active[i]->arrived->due < active[first]->arrived->due) {
                first = i;
            }
        }
        gl_port *port = active[first];
        gl_packet *packet = port->arrived;
        if (packet->due > horizon) {
            return horizon;
        }
        if (done % UNTIMED == 0 && gl_clock(CLOCK_MONOTONIC) >= end) {
            return packet->due;
        }
        port->arrived = packet->next;
        port->arrived_count--;
        gl_catch_up(dp, packet->due);
        gl_from_host(dp, port, packet);
        if (!port->arrived) {
            active[first] = active[--count];
        }
    }
    return horizon;
}

/* When a port next has something to do, or UINT64_MAX. */
static uint64_t next_of(const gl_port *port) {
    uint64_t next = gl_port_departure(port);
    const gl_link *links[] = {&port->tx_link, &port->rx_link};
    for (int i = 0; i < 2; i++) {
        if (links[i]->count && links[i]->heap[0]->due < next) {
            next = links[i]->heap[0]->due;
        }
    }
    return next;
}

uint64_t gl_next_event(const gl_dataplane *dp) {
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < dp->count; i++) {
        const gl_port *port = dp->list[i];
        uint64_t at = port->arrived ? 0 : next_of(port);
        next = at < next ? at : next;
    }
    return next;
}

void gl_flush_all(gl_dataplane *dp) {
    for (uint32_t i = 0; i < dp->count; i++) {
        if (dp->list[i]->leaving_count) {
            gl_port_flush(&dp->shared, dp->list[i]);
        }
    }
}

void gl_advance_all(gl_dataplane *dp, uint64_t now) {
    gl_catch_up(dp, now);
    for (uint32_t i = 0; i < dp->count; i++) {
        gl_port_deliver(&dp->shared, dp->list[i], now);
    }
    gl_flush_all(dp);
}
