/* SPDX-License-Identifier: Apache-2.0 */
#include "ports/queues.h"

#include "base/counter.h"
#include "packets/trace.h"

void gl_port_append(gl_port *port, gl_packet *packet) {
    gl_queue *queue = &port->queues[packet->queue];
    packet->next = NULL;
    packet->prev = queue->tail;
    if (queue->tail) {
        queue->tail->next = packet;
    } else {
        queue->head = packet;
    }
    queue->tail = packet;
    queue->bytes += packet->size;
    queue->packets++;
    port->depth += packet->size;
    port->waiting++;
}

void gl_port_unlink(gl_port *port, gl_packet *packet) {
    gl_queue *queue = &port->queues[packet->queue];
    *(packet->prev ? &packet->prev->next : &queue->head) = packet->next;
    *(packet->next ? &packet->next->prev : &queue->tail) = packet->prev;
    queue->bytes -= packet->size;
    queue->packets--;
    port->depth -= packet->size;
    port->waiting--;
}

/* Drops a packet that waits. */
static void drop(gl_shared *shared, gl_port *port, gl_packet *packet, uint64_t reason) {
    gl_port_unlink(port, packet);
    GL_NOTE(gl_tracer_of(shared, packet), GL_TRACE_FLUSHED, packet->traced, reason, port->number, packet->queue);
    gl_store_put(&shared->store, packet->kept);
    gl_pool_put(&shared->pool, packet);
}

/* ---- Room ---- */

/* The queue whose tail goes first, if `length` more bytes were in queue `arriving`. Strict priority: the lowest class
 * that has packets. Deficit round robin: the one with most bytes for its weight, so that none takes others' share of
 * the buffer (the longest-queue drop of fair queueing). */
static uint32_t victim(const gl_port *port, uint32_t arriving, uint32_t length) {
    const uint32_t *weights = port->config.weights;
    uint32_t worst = GL_QUEUES;
    uint64_t most = 0;
    for (uint32_t i = 0; i < GL_QUEUES; i++) {
        uint64_t bytes = port->queues[i].bytes + (i == arriving ? length : 0);
        if (bytes == 0) {
            continue;
        }
        if (!gl_port_weighted(port)) {
            return i;
        }
        if (worst == GL_QUEUES || bytes * weights[worst] > most * weights[i]) {
            worst = i;
            most = bytes;
        }
    }
    return worst;
}

static void push_out(gl_shared *shared, gl_port *port, uint32_t queue) {
    gl_packet *packet = port->queues[queue].tail;
    gl_tally(&port->stats.queues[queue].tail_dropped, packet->size);
    gl_tally(&port->stats.queues[queue].pushed_out, packet->size);
    drop(shared, port, packet, GL_DROP_PUSHED_OUT);
}

/* Makes room for a packet by dropping tails of other queues. 0 if there is none to be made. */
static int make_room(gl_shared *shared, gl_port *port, uint32_t queue, uint32_t length) {
    uint64_t buffer = port->config.buffer;
    if (port->depth + length <= buffer) {
        return 1;
    }
    if (length > buffer || shared->settling) {
        return 0;
    }
    if (!gl_port_weighted(port)) {
        uint64_t lower = 0;
        for (uint32_t i = 0; i < queue; i++) {
            lower += port->queues[i].bytes;
        }
        if (port->depth - lower + length > buffer) {
            return 0;
        }
    }
    while (port->depth + length > buffer) {
        uint32_t worst = victim(port, queue, length);
        if (worst == queue) {
            return 0;
        }
        push_out(shared, port, worst);
    }
    return 1;
}

static gl_admission refuse(gl_shared *shared, gl_port *port, gl_packet *packet, gl_counter *count, uint64_t reason) {
    gl_tally(count, packet->size);
    GL_NOTE(shared->host.tracer, GL_TRACE_DROPPED, reason, port->number, packet->queue);
    gl_pool_put(&shared->pool, packet);
    return GL_GONE;
}

gl_admission gl_port_enqueue(gl_shared *shared, gl_port *port, gl_packet *packet, const void *state, size_t bytes,
                             size_t room) {
    gl_queue_stats *stats = &port->stats.queues[packet->queue];
    if (!make_room(shared, port, packet->queue, packet->size)) {
        return refuse(shared, port, packet, &stats->tail_dropped, GL_DROP_TAIL);
    }
    int now = shared->settling || (!port->waiting && port->free_at <= packet->due);
    if (!now) {
        packet->kept = gl_store_keep(&shared->store, state, bytes, room);
        packet->kept_bytes = (uint32_t)bytes;
        if (!packet->kept) {
            return refuse(shared, port, packet, &port->stats.tx_no_memory, GL_DROP_NO_MEMORY);
        }
    }
    uint64_t in_queue = port->queues[packet->queue].bytes + packet->size, at_port = port->depth + packet->size;
    packet->queued = GL_PASSED_QUEUE;
    packet->marked = port->config.ecn && in_queue > port->config.ecn;
    gl_tally(&stats->enqueued, packet->size);
    if (at_port > port->stats.depth_max) {
        port->stats.depth_max = at_port;
    }
    GL_NOTE(shared->host.tracer, GL_TRACE_QUEUED, port->number, packet->queue, packet->size, in_queue, at_port);
    if (!now) {
        gl_port_append(port, packet);
        gl_expect(shared, port->free_at);
        return GL_WAITS;
    }
    if (!port->waiting && port->free_at < packet->due) {
        port->free_at = packet->due;
        port->free_rest = 0;
    }
    GL_NOTE(shared->host.tracer, GL_TRACE_DEQUEUED, packet->traced, port->number, packet->queue, UINT64_C(0));
    return GL_NOW;
}

void gl_port_flush_queues(gl_shared *shared, gl_port *port) {
    for (uint32_t i = 0; i < GL_QUEUES; i++) {
        for (gl_packet *packet; (packet = port->queues[i].head);) {
            gl_tally(&port->stats.queues[i].flushed, packet->size);
            drop(shared, port, packet, GL_DROP_DOWN);
        }
    }
}

void gl_port_shrink_queues(gl_shared *shared, gl_port *port) {
    while (port->depth > port->config.buffer) {
        push_out(shared, port, victim(port, GL_QUEUES, 0));
    }
}

/* ---- Scheduling ---- */

static uint32_t next_class(const gl_port *port) {
    uint32_t i = GL_QUEUES - 1;
    while (!port->queues[i].head) {
        i--;
    }
    return i;
}

/* Deficit round robin (Shreedhar and Varghese, 1996). A quantum is a whole frame or more, so a turn sends something. */
static uint32_t next_turn(gl_port *port) {
    for (;;) {
        gl_queue *queue = &port->queues[port->turn];
        if (queue->head) {
            if (!port->granted) {
                queue->deficit += (uint64_t)port->config.weights[port->turn] * port->frame_limit;
                port->granted = 1;
            }
            if (queue->deficit >= queue->head->size) {
                return port->turn;
            }
        } else {
            queue->deficit = 0;
        }
        port->turn = (port->turn + 1) % GL_QUEUES;
        port->granted = 0;
    }
}

/* A long queue has grown cold: fetches what the packet after this one needs while this one is worked on. */
static void warm(const gl_packet *packet) {
    if (packet) {
        for (size_t at = 0; packet->kept && at < packet->kept_bytes; at += 64) {
            __builtin_prefetch((const char *)packet->kept + at);
        }
        __builtin_prefetch(packet->data);
        __builtin_prefetch(packet->next);
    }
}

gl_packet *gl_port_dequeue(gl_port *port) {
    gl_packet *packet = port->queues[gl_port_weighted(port) ? next_turn(port) : next_class(port)].head;
    warm(packet->next);
    gl_port_unlink(port, packet);
    return packet;
}
