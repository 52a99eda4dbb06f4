/* SPDX-License-Identifier: Apache-2.0
 * A port towards a host: eight queues that share a byte buffer, drained at the port's rate onto a link.
 *
 * Departures follow a schedule of absolute times, as on a wire: a packet starts when the one before it has ended, or
 * when it arrives at an idle port. A thread that wakes late sends late, but neither loses rate nor sends bursts that the
 * schedule does not have. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "ports/port.h"

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
static void drop(gl_dataplane *dp, gl_port *port, gl_packet *packet, uint64_t reason) {
    gl_port_unlink(port, packet);
    GL_NOTE(gl_tracer_of(dp, packet), GL_TRACE_FLUSHED, packet->traced, reason, port->number, packet->queue);
    gl_store_put(&dp->store, packet->kept);
    gl_pool_put(&dp->pool, packet);
}

static int weighted(const gl_port *port) {
    return port->config.weights[0] != 0;
}

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
        if (!weighted(port)) {
            return i;
        }
        if (worst == GL_QUEUES || bytes * weights[worst] > most * weights[i]) {
            worst = i;
            most = bytes;
        }
    }
    return worst;
}

static void push_out(gl_dataplane *dp, gl_port *port, uint32_t queue) {
    gl_packet *packet = port->queues[queue].tail;
    gl_note(&port->stats.queues[queue].tail_dropped, packet->size);
    gl_note(&port->stats.queues[queue].pushed_out, packet->size);
    drop(dp, port, packet, GL_DROP_PUSHED_OUT);
}

/* Makes room for a packet by dropping tails of other queues. 0 if there is none to be made. */
static int make_room(gl_dataplane *dp, gl_port *port, uint32_t queue, uint32_t length) {
    uint64_t buffer = port->config.buffer;
    if (port->depth + length <= buffer) {
        return 1;
    }
    if (length > buffer || dp->settling) {
        return 0;
    }
    if (!weighted(port)) {
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
        push_out(dp, port, worst);
    }
    return 1;
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

/* ---- Sending ---- */

enum { ALONE = 1000000000 /* ns */ };

/* Makes messages of the packets that are leaving, from one on; how many. */
static uint32_t pack(gl_port *port, gl_outbox *outbox, uint32_t from, int join) {
    struct iovec *vectors = outbox->vectors;
    uint32_t messages = 0;
    for (uint32_t i = from; i < port->leaving_count; i += outbox->counts[messages++]) {
        gl_packet **packets = &port->leaving[i];
        struct iovec *first = vectors;
        uint32_t used = 1, count = 1;
        if (port->io->offload) {
            struct virtio_net_hdr *offload = &outbox->offloads[messages];
            *vectors++ = (struct iovec){offload, sizeof *offload};
            count = join ? port->leaving_count - i : 1;
            count = gl_offload_join(packets, count, offload, outbox->headers[messages], vectors, &used);
        } else {
            *vectors = (struct iovec){packets[0]->data, packets[0]->length};
        }
        vectors += used;
        outbox->packets[messages] = packets;
        outbox->counts[messages] = count;
        outbox->messages[messages].msg_hdr = (struct msghdr){.msg_iov = first, .msg_iovlen = (size_t)(vectors - first)};
    }
    return messages;
}

void gl_port_flush(gl_dataplane *dp, gl_port *port) {
    gl_outbox *outbox = &dp->outbox;
    uint32_t done = 0;
    while (done < port->leaving_count) {
        uint32_t messages = pack(port, outbox, done, dp->clock >= port->alone_until);
        for (uint32_t message = 0; message < messages;) {
            int sent = port->io->send(port, outbox, message, messages);
            for (int i = 0; i < sent; i++) {
                for (uint32_t end = done + outbox->counts[message++]; done < end; done++) {
                    gl_note(&port->stats.tx, port->leaving[done]->length);
                }
            }
            if (sent > 0 || errno == EINTR || errno == ECONNREFUSED) {
                continue;  /* Refused: an earlier datagram; the tunnel's other end is not there yet. */
            }
            if (outbox->counts[message] > 1) {
                /* An interface with its offloads off takes packets one by one only. */
                port->alone_until = dp->clock + ALONE;
                break;
            }
            /* A full interface queue, or no interface. */
            gl_note(&port->stats.tx_errors, port->leaving[done]->length);
            gl_tell(dp, port, GL_EVENT_TX_ERROR, errno, port->leaving[done]->length);
            done++;
            message++;
        }
    }
    for (uint32_t i = 0; i < port->leaving_count; i++) {
        gl_pool_put(&dp->pool, port->leaving[i]);
    }
    port->leaving_count = 0;
}

static void transmit(gl_dataplane *dp, gl_port *port, gl_packet *packet) {
    if (port->leaving_count == GL_BATCH) {
        gl_port_flush(dp, port);
    }
    port->leaving[port->leaving_count++] = packet;
}

static void onto_link(gl_dataplane *dp, gl_port *port, gl_packet *packet, uint64_t at) {
    gl_packet *twin;
    switch (gl_link_enter(&port->tx_link, &dp->pool, packet, at, &twin)) {
    case GL_LINK_NOW:
        transmit(dp, port, packet);
        if (twin) {
            transmit(dp, port, twin);
        }
        break;
    case GL_LINK_LATER:
        break;
    case GL_LINK_NO_MEMORY:
        gl_note(&port->stats.tx_no_memory, packet->length);
        gl_pool_put(&dp->pool, packet);
        break;
    case GL_LINK_LOST:
        GL_NOTE(dp->host.tracer, GL_TRACE_DROPPED, GL_DROP_TX_LINK, port->number, packet->queue);
        gl_pool_put(&dp->pool, packet);
        break;
    }
}

/* When a packet that starts now will have ended. Fractions of a ns are kept, or a fast port would be faster than that. */
static void occupy(gl_port *port, uint32_t length) {
    if (port->config.rate) {
        uint64_t work = length * 8 * GL_SECOND + port->free_rest;
        port->free_at += work / port->config.rate;
        port->free_rest = work % port->config.rate;
    }
}

void gl_port_deliver(gl_dataplane *dp, gl_port *port, uint64_t now) {
    for (gl_packet *packet; (packet = gl_link_due(&port->tx_link, now));) {
        transmit(dp, port, packet);
    }
}

void gl_port_send(gl_dataplane *dp, gl_port *port, gl_packet *packet) {
    uint64_t start = port->free_at;
    GL_NOTE(dp->host.tracer, GL_TRACE_SENT, port->number, packet->queue, packet->length);
    if (packet->marked && gl_mark_ce(packet->data, packet->length)) {
        gl_note(&port->stats.queues[packet->queue].marked, packet->length);
    }
    if (weighted(port)) {
        uint64_t *deficit = &port->queues[packet->queue].deficit;
        *deficit -= packet->size < *deficit ? packet->size : *deficit;
    }
    occupy(port, packet->length);
    /* Links deliver in order of time: what arrived at the host before this started goes first. */
    gl_port_deliver(dp, port, start);
    onto_link(dp, port, packet, start);
}

/* A long queue has grown cold: fetches what the packet after this one needs while this one is worked on. */
static void warm(const gl_dataplane *dp, const gl_packet *packet) {
    if (packet) {
        for (size_t at = 0; packet->kept && at < dp->store.size; at += 64) {
            __builtin_prefetch((const char *)packet->kept + at);
        }
        __builtin_prefetch(packet->data);
        __builtin_prefetch(packet->next);
    }
}

void gl_port_depart(gl_dataplane *dp, gl_port *port) {
    gl_packet *packet = port->queues[weighted(port) ? next_turn(port) : next_class(port)].head;
    void *kept = packet->kept;
    warm(dp, packet->next);
    gl_port_unlink(port, packet);
    if (kept) {
        GL_NOTE(gl_tracer_of(dp, packet), GL_TRACE_DEQUEUED, packet->traced, port->number, packet->queue,
                port->free_at - packet->due);
        gl_process_packet(dp, packet, port->free_at);
        gl_store_put(&dp->store, kept);
    } else {
        gl_port_send(dp, port, packet);
    }
}

uint64_t gl_port_next(const gl_port *port) {
    uint64_t next = gl_port_departure(port);
    const gl_link *links[] = {&port->tx_link, &port->rx_link};
    for (int i = 0; i < 2; i++) {
        if (links[i]->count && links[i]->heap[0]->due < next) {
            next = links[i]->heap[0]->due;
        }
    }
    return next;
}

static gl_admission refuse(gl_dataplane *dp, gl_port *port, gl_packet *packet, gl_traffic *count, uint64_t reason) {
    gl_note(count, packet->size);
    GL_NOTE(dp->host.tracer, GL_TRACE_DROPPED, reason, port->number, packet->queue);
    gl_pool_put(&dp->pool, packet);
    return GL_GONE;
}

gl_admission gl_port_enqueue(gl_dataplane *dp, gl_port *port, gl_packet *packet, const void *state, size_t bytes) {
    gl_queue_stats *stats = &port->stats.queues[packet->queue];
    if (!make_room(dp, port, packet->queue, packet->size)) {
        return refuse(dp, port, packet, &stats->tail_dropped, GL_DROP_TAIL);
    }
    int now = dp->settling || (!port->waiting && port->free_at <= packet->due);
    if (!now) {
        packet->kept = gl_store_keep(&dp->store, state, bytes);
        if (!packet->kept) {
            return refuse(dp, port, packet, &port->stats.tx_no_memory, GL_DROP_NO_MEMORY);
        }
    }
    uint64_t in_queue = port->queues[packet->queue].bytes + packet->size, at_port = port->depth + packet->size;
    packet->queued = GL_PASSED_QUEUE;
    packet->marked = port->config.ecn && in_queue > port->config.ecn;
    gl_note(&stats->enqueued, packet->size);
    if (at_port > port->stats.depth_max) {
        port->stats.depth_max = at_port;
    }
    GL_NOTE(dp->host.tracer, GL_TRACE_QUEUED, port->number, packet->queue, packet->size, in_queue, at_port);
    if (!now) {
        gl_port_append(port, packet);
        gl_expect(dp, port->free_at);
        return GL_WAITS;
    }
    if (!port->waiting && port->free_at < packet->due) {
        port->free_at = packet->due;
        port->free_rest = 0;
    }
    GL_NOTE(dp->host.tracer, GL_TRACE_DEQUEUED, packet->traced, port->number, packet->queue, UINT64_C(0));
    return GL_NOW;
}

void gl_port_settle(gl_dataplane *dp, gl_port *port) {
    for (uint32_t i = 0; i < GL_QUEUES; i++) {
        for (gl_packet *packet = port->queues[i].head, *next; packet; packet = next) {
            next = packet->next;
            void *kept = packet->kept;
            if (kept) {
                packet->queued = GL_IN_QUEUE;
                gl_process_packet(dp, packet, dp->clock);
                gl_store_put(&dp->store, kept);
            }
        }
    }
}

/* ---- Settings, coming and going ---- */

static void flush_queues(gl_dataplane *dp, gl_port *port) {
    for (uint32_t i = 0; i < GL_QUEUES; i++) {
        for (gl_packet *packet; (packet = port->queues[i].head);) {
            gl_note(&port->stats.queues[i].flushed, packet->size);
            drop(dp, port, packet, GL_DROP_DOWN);
        }
    }
}

void gl_port_apply(gl_dataplane *dp, gl_port *port, uint64_t at, gl_port_config config) {
    if (port->free_at > at && port->config.rate != config.rate) {
        unsigned __int128 left = (unsigned __int128)(port->free_at - at) * port->config.rate;
        port->free_at = at + (config.rate ? (uint64_t)(left / config.rate) : 0);
        gl_expect(dp, port->free_at);
    }
    port->config = config;
    gl_link_configure(&port->tx_link, config.tx);
    gl_link_configure(&port->rx_link, config.rx);
    port->free_rest = 0;
    if (!config.up) {
        flush_queues(dp, port);
    }
    while (port->depth > config.buffer) {
        push_out(dp, port, victim(port, GL_QUEUES, 0));
    }
}

gl_port *gl_port_new(uint32_t number, uint32_t kind, int fd, uint32_t frame_limit, uint64_t seed) {
    gl_port *port = calloc(1, sizeof *port);
    if (!port) {
        return NULL;
    }
    port->number = number;
    port->io = &gl_kinds[kind];
    port->fd = kind == GL_PORT_FILE ? -1 : fd;  /* Nothing ever comes from a file by itself. */
    port->frame_limit = frame_limit;
    port->stats.up = 1;
    port->tx_link.seed = seed * 2 * GL_PORTS + 2 * number;
    port->rx_link.seed = seed * 2 * GL_PORTS + 2 * number + 1;
    if (kind == GL_PORT_FILE && fd >= 0) {
        int own = dup(fd);
        port->file = own < 0 ? NULL : fdopen(own, "ab");
        if (!port->file && own >= 0) {
            close(own);
        }
    }
    if (kind == GL_PORT_FILE && fd >= 0 && !port->file) {
        free(port);
        return NULL;
    }
    return port;
}

static void cut(gl_dataplane *dp, gl_port *port, gl_packet **packets, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        gl_note(&port->stats.cut, packets[i]->length);
        gl_pool_put(&dp->pool, packets[i]);
    }
}

void gl_port_empty(gl_dataplane *dp, gl_port *port) {
    flush_queues(dp, port);
    cut(dp, port, port->tx_link.heap, port->tx_link.count);
    cut(dp, port, port->rx_link.heap, port->rx_link.count);
    cut(dp, port, port->leaving, port->leaving_count);
    port->tx_link.count = port->rx_link.count = port->leaving_count = 0;
    while (port->arrived) {
        gl_packet *packet = port->arrived;
        port->arrived = packet->next;
        cut(dp, port, &packet, 1);
    }
    port->arrived_count = 0;
}

void gl_port_free(gl_dataplane *dp, gl_port *port) {
    gl_port_empty(dp, port);
    free(port->tx_link.heap);
    free(port->rx_link.heap);
    if (port->file) {
        fclose(port->file);
    }
    free(port);
}
