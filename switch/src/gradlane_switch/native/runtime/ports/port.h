/* SPDX-License-Identifier: Apache-2.0
 * A port towards a host: eight queues that share a byte buffer, drained at the rate of the port onto a link. */
#ifndef GL_PORT_H
#define GL_PORT_H

#include <stdio.h>

#include "packets/packet.h"
#include "ports/api.h"
#include "wire/link.h"
#include "wire/messages.h"

typedef struct {
    gl_packet *head, *tail;
    uint64_t bytes, packets;
    uint64_t deficit;        /* bytes that it may still send in its turn */
} gl_queue;

typedef struct gl_port gl_port;

/* How a kind of port gets frames in and out. */
typedef struct {
    int offload;             /* frames have a virtio_net_hdr in front */
    uint32_t shortest;       /* bytes of a frame that the kernel takes, at least */
    /* As recvmmsg does: fills the first `room` messages; how many, or -1 and errno. */
    int (*receive)(gl_port *port, gl_inbox *inbox, uint32_t room);
    /* As sendmmsg does: sends messages [first, end); how many, or -1 and errno. */
    int (*send)(gl_port *port, gl_outbox *outbox, uint32_t first, uint32_t end);
    /* Frames that the kernel has dropped since the last call, because too many waited. */
    uint64_t (*drops)(gl_port *port);
} gl_io;

struct gl_port {
    uint32_t number;
    const gl_io *io;
    int fd;
    FILE *file;              /* of a pcap port; NULL: what it sends goes nowhere */
    uint64_t epoch;          /* ns: what the file's times count from */
    uint32_t frame_limit;    /* bytes */
    gl_port_config config;
    gl_queue queues[GL_QUEUES];
    uint64_t waiting;        /* packets in all queues */
    uint64_t depth;          /* bytes in all queues */
    uint32_t turn;           /* deficit round robin: the queue whose turn it is */
    int granted;             /* and whether it has got its quantum */
    uint64_t free_at;        /* ns: when the link to the host has sent what it was given */
    uint64_t free_rest;      /* and what is left of a ns, in bit * ns */
    gl_link tx_link, rx_link;
    gl_packet *arrived, *last_arrived;   /* received, in order of time */
    uint32_t arrived_count;
    int more;                /* the socket may hold more */
    gl_packet *leaving[GL_BATCH];
    uint32_t leaving_count;
    uint64_t alone_until;    /* ns: the interface has refused packets that were joined */
    gl_port_stats stats;
    uint8_t reported;        /* events already reported, one bit per kind */
    uint32_t udp_drops;      /* the kernel's count when it was last read */
};

/* When a packet next leaves a queue, or UINT64_MAX. */
static inline uint64_t gl_port_departure(const gl_port *port) {
    return port->waiting ? port->free_at : UINT64_MAX;
}

/* Whether its queues share the rate by deficit round robin, rather than by strict priority. */
static inline int gl_port_weighted(const gl_port *port) {
    return port->config.weights[0] != 0;
}

#endif
