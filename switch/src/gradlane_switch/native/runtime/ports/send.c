/* SPDX-License-Identifier: Apache-2.0
 * Departures follow a schedule of absolute times, as on a wire: a packet starts when the one before it has ended, or
 * when it arrives at an idle port. A thread that wakes late sends late, but neither loses rate nor sends bursts that the
 * schedule does not have. */
#include "ports/send.h"

#include <errno.h>

#include "base/counter.h"
#include "base/time.h"
#include "packets/trace.h"
#include "ports/events.h"
#include "wire/ecn.h"
#include "wire/offload.h"

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

void gl_port_flush(gl_shared *shared, gl_port *port) {
    gl_outbox *outbox = &shared->outbox;
    uint32_t done = 0;
    while (done < port->leaving_count) {
        uint32_t messages = pack(port, outbox, done, shared->clock >= port->alone_until);
        for (uint32_t message = 0; message < messages;) {
            int sent = port->io->send(port, outbox, message, messages);
            for (int i = 0; i < sent; i++) {
                for (uint32_t end = done + outbox->counts[message++]; done < end; done++) {
                    gl_tally(&port->stats.tx, port->leaving[done]->length);
                }
            }
            if (sent > 0 || errno == EINTR || errno == ECONNREFUSED) {
                continue;  /* Refused: an earlier datagram; the tunnel's other end is not there yet. */
            }
            if (outbox->counts[message] > 1) {
                /* An interface with its offloads off takes packets one by one only. */
                port->alone_until = shared->clock + ALONE;
                break;
            }
            /* A full interface queue, or no interface. */
            gl_tally(&port->stats.tx_errors, port->leaving[done]->length);
            gl_report(shared, port, GL_EVENT_TX_ERROR, errno, port->leaving[done]->length);
            done++;
            message++;
        }
    }
    for (uint32_t i = 0; i < port->leaving_count; i++) {
        gl_pool_put(&shared->pool, port->leaving[i]);
    }
    port->leaving_count = 0;
}

static void transmit(gl_shared *shared, gl_port *port, gl_packet *packet) {
    if (port->leaving_count == GL_BATCH) {
        gl_port_flush(shared, port);
    }
    port->leaving[port->leaving_count++] = packet;
}

static void onto_link(gl_shared *shared, gl_port *port, gl_packet *packet, uint64_t at) {
    gl_packet *twin;
    switch (gl_link_enter(&port->tx_link, &shared->pool, packet, at, &twin)) {
    case GL_LINK_NOW:
        transmit(shared, port, packet);
        if (twin) {
            transmit(shared, port, twin);
        }
        break;
    case GL_LINK_LATER:
        break;
    case GL_LINK_NO_MEMORY:
        gl_tally(&port->stats.tx_no_memory, packet->length);
        gl_pool_put(&shared->pool, packet);
        break;
    case GL_LINK_LOST:
        GL_NOTE(shared->host.tracer, GL_TRACE_DROPPED, GL_DROP_TX_LINK, port->number, packet->queue);
        gl_pool_put(&shared->pool, packet);
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

void gl_port_deliver(gl_shared *shared, gl_port *port, uint64_t now) {
    for (gl_packet *packet; (packet = gl_link_due(&port->tx_link, now));) {
        transmit(shared, port, packet);
    }
}

void gl_port_send(gl_shared *shared, gl_port *port, gl_packet *packet) {
    uint64_t start = port->free_at;
    GL_NOTE(shared->host.tracer, GL_TRACE_SENT, port->number, packet->queue, packet->length);
    if (packet->marked && gl_mark_ce(packet->data, packet->length)) {
        gl_tally(&port->stats.queues[packet->queue].marked, packet->length);
    }
    if (gl_port_weighted(port)) {
        uint64_t *deficit = &port->queues[packet->queue].deficit;
        *deficit -= packet->size < *deficit ? packet->size : *deficit;
    }
    occupy(port, packet->length);
    /* Links deliver in order of time: what arrived at the host before this started goes first. */
    gl_port_deliver(shared, port, start);
    onto_link(shared, port, packet, start);
}
