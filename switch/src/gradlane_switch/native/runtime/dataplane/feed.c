/* SPDX-License-Identifier: Apache-2.0
 * Frames that come from no socket: from the controller, from files. */
#include <errno.h>
#include <string.h>

#include "base/counter.h"
#include "base/time.h"
#include "dataplane/host.h"
#include "dataplane/schedule.h"
#include "ports/events.h"

int gl_inject(gl_dataplane *dp, uint32_t port, const uint8_t *frame, uint32_t length) {
    gl_acquire(dp->lock);
    gl_packet *packet = length <= dp->shared.frame_size ? gl_pool_get(&dp->shared.pool) : NULL;
    if (packet) {
        packet->port = (uint16_t)port;
        packet->length = length;
        memcpy(packet->data, frame, length);
        gl_tally(&(dp->ports[port] ? &dp->ports[port]->stats : &dp->elsewhere)->rx, length);
        uint64_t now = gl_clock(CLOCK_MONOTONIC);
        gl_catch_up(dp, now);
        gl_process_packet(dp, packet, now);
        gl_flush_all(dp);
    }
    gl_release(dp->lock);
    gl_wake(dp);
    return packet ? 0 : -1;
}

static void feed(gl_dataplane *dp, gl_port *port, uint64_t now, const uint8_t *frame, uint32_t length) {
    if (length > port->frame_limit) {
        gl_tally(&port->stats.oversize, length);
        gl_report(&dp->shared, port, GL_EVENT_OVERSIZE, 0, length);
        return;
    }
    gl_tally(&port->stats.rx, length);
    gl_packet *packet = gl_pool_get(&dp->shared.pool);
    if (!packet) {
        gl_tally(&port->stats.rx_no_memory, length);
        return;
    }
    packet->port = (uint16_t)port->number;
    packet->due = now;
    packet->length = length;
    memcpy(packet->data, frame, length);
    if (port->config.up) {
        gl_from_host(dp, port, packet);
    } else {
        gl_tally(&port->stats.rx_down, packet->length);
        gl_pool_put(&dp->shared.pool, packet);
    }
}

void gl_feed(gl_dataplane *dp, uint32_t port, uint64_t now, const uint8_t *frame, uint32_t length) {
    gl_acquire(dp->lock);
    gl_catch_up(dp, now);
    feed(dp, dp->ports[port], now, frame, length);
    gl_release(dp->lock);
}

int gl_finish(gl_dataplane *dp) {
    int error = 0;
    gl_acquire(dp->lock);
    for (uint64_t next; (next = gl_next_event(dp)) != UINT64_MAX;) {
        gl_advance_all(dp, next);
    }
    gl_advance_all(dp, 0);
    for (uint32_t i = 0; i < dp->count; i++) {
        if (dp->list[i]->file && fflush(dp->list[i]->file)) {
            error = errno;
        }
    }
    gl_release(dp->lock);
    return error;
}
