/* SPDX-License-Identifier: Apache-2.0
 * A port towards a host: eight strict-priority queues that share a byte buffer, drained at the port's rate onto a link.
 *
 * Departures follow a schedule of absolute times, as on a wire: a packet starts when the one before it has ended, or
 * when it arrives at an idle port. A thread that wakes late sends late, but neither loses rate nor sends bursts that the
 * schedule does not have. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "port.h"

static const uint64_t NS = 1000000000u;

void gl_tell(gl_dataplane *dp, gl_port *port, uint32_t kind, int error, uint32_t length) {
    if (port->told >> kind & 1) {
        return;
    }
    gl_event event = {kind, port->number, error, length};
    if (write(dp->event_fd, &event, sizeof event) == sizeof event) {
        port->told |= (uint8_t)(1u << kind);
    }
}

/* ---- Queues ---- */

static void append(gl_queue *queue, gl_packet *packet) {
    packet->next = NULL;
    packet->prev = queue->tail;
    if (queue->tail) {
        queue->tail->next = packet;
    } else {
        queue->head = packet;
    }
    queue->tail = packet;
    queue->bytes += packet->length;
}

static gl_packet *take_head(gl_queue *queue) {
    gl_packet *packet = queue->head;
    queue->head = packet->next;
    if (queue->head) {
        queue->head->prev = NULL;
    } else {
        queue->tail = NULL;
    }
    queue->bytes -= packet->length;
    return packet;
}

static gl_packet *take_tail(gl_queue *queue) {
    gl_packet *packet = queue->tail;
    queue->tail = packet->prev;
    if (queue->tail) {
        queue->tail->next = NULL;
    } else {
        queue->head = NULL;
    }
    queue->bytes -= packet->length;
    return packet;
}

static void count(gl_traffic *traffic, uint32_t length) {
    traffic->packets++;
    traffic->bytes += length;
}

/* Makes room for a packet of a class by dropping the tails of lower classes, lowest first. 0 if that can't be enough. */
static int make_room(gl_dataplane *dp, gl_port *port, uint32_t queue, uint32_t length) {
    if (port->depth + length <= port->config.buffer) {
        return 1;
    }
    uint64_t lower = 0;
    for (uint32_t i = 0; i < queue; i++) {
        lower += port->queues[i].bytes;
    }
    if (port->depth - lower + length > port->config.buffer) {
        return 0;
    }
    for (uint32_t i = 0; port->depth + length > port->config.buffer;) {
        if (!port->queues[i].tail) {
            i++;
            continue;
        }
        gl_packet *packet = take_tail(&port->queues[i]);
        port->depth -= packet->length;
        count(&port->stats.tail_dropped[i], packet->length);
        gl_pool_put(&dp->pool, packet);
    }
    return 1;
}

/* ---- Sending ---- */

void gl_port_flush(gl_dataplane *dp, gl_port *port) {
    gl_batch *batch = &port->tx;
    uint32_t done = 0;
    while (done < batch->count) {
        int sent = sendmmsg(port->fd, batch->messages + done, batch->count - done, MSG_DONTWAIT);
        for (int i = 0; i < sent; i++) {
            count(&port->stats.tx, batch->packets[done + (uint32_t)i]->length);
        }
        if (sent > 0) {
            done += (uint32_t)sent;
        } else if (errno != EINTR) {
            /* The first of the rest is refused: a full interface queue, or no interface. */
            port->stats.tx_errors++;
            gl_tell(dp, port, GL_EVENT_TX_ERROR, errno, batch->packets[done]->length);
            done++;
        }
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        gl_pool_put(&dp->pool, batch->packets[i]);
    }
    batch->count = 0;
}

static void transmit(gl_dataplane *dp, gl_port *port, gl_packet *packet) {
    gl_batch *batch = &port->tx;
    if (batch->count == GL_BATCH) {
        gl_port_flush(dp, port);
    }
    batch->packets[batch->count] = packet;
    batch->vectors[batch->count] = (struct iovec){packet->data, packet->length};
    batch->count++;
}

static void onto_link(gl_dataplane *dp, gl_port *port, gl_packet *packet, uint64_t at) {
    switch (gl_link_enter(&port->tx_link, packet, at)) {
    case GL_LINK_NOW:
        transmit(dp, port, packet);
        break;
    case GL_LINK_LATER:
        break;
    case GL_LINK_NO_MEMORY:
        port->stats.no_memory++;
        gl_pool_put(&dp->pool, packet);
        break;
    case GL_LINK_LOST:
        gl_pool_put(&dp->pool, packet);
        break;
    }
}

void gl_port_advance(gl_dataplane *dp, gl_port *port, uint64_t now) {
    while (port->depth && port->free_at <= now) {
        int i = GL_QUEUES - 1;
        while (!port->queues[i].head) {
            i--;
        }
        gl_packet *packet = take_head(&port->queues[i]);
        port->depth -= packet->length;
        uint64_t start = port->free_at;
        if (port->config.rate) {
            port->free_at += packet->length * 8 * NS / port->config.rate;
        }
        onto_link(dp, port, packet, start);
    }
    for (gl_packet *packet; (packet = gl_link_due(&port->tx_link, now));) {
        transmit(dp, port, packet);
    }
}

uint64_t gl_port_next(const gl_port *port) {
    uint64_t next = port->depth ? port->free_at : UINT64_MAX;
    const gl_link *links[] = {&port->tx_link, &port->rx_link};
    for (int i = 0; i < 2; i++) {
        if (links[i]->count && links[i]->heap[0]->due < next) {
            next = links[i]->heap[0]->due;
        }
    }
    return next;
}

void gl_port_enqueue(gl_dataplane *dp, gl_port *port, gl_packet *packet, uint32_t queue, uint64_t now) {
    gl_port_advance(dp, port, now);
    if (!make_room(dp, port, queue, packet->length)) {
        count(&port->stats.tail_dropped[queue], packet->length);
        gl_pool_put(&dp->pool, packet);
        return;
    }
    count(&port->stats.enqueued[queue], packet->length);
    if (port->depth == 0 && port->free_at < now) {
        port->free_at = now;
    }
    append(&port->queues[queue], packet);
    port->depth += packet->length;
    if (port->depth > port->stats.depth_max) {
        port->stats.depth_max = port->depth;
    }
    gl_port_advance(dp, port, now);
}
