/* SPDX-License-Identifier: Apache-2.0
 * Packet buffers, links and ports, as the forwarder and the statistics see them. */
#ifndef GL_PORT_H
#define GL_PORT_H

#include <sys/socket.h>

#include "lock.h"
#include "runtime.h"

/* ---- Packet buffers ---- */

typedef struct {
    gl_packet *free;
    void *slabs;             /* chained through their first word */
    size_t packet_size;
    uint64_t limit;          /* bytes that may still be allocated */
} gl_pool;

/* NULL for want of memory. */
gl_packet *gl_pool_get(gl_pool *pool);
void gl_pool_clear(gl_pool *pool);

static inline void gl_pool_put(gl_pool *pool, gl_packet *packet) {
    packet->next = pool->free;
    pool->free = packet;
}

/* ---- Links: loss, delay and reordering of one direction ---- */

typedef struct {
    gl_impairment config;
    uint64_t random;
    uint64_t sequence;       /* of the next packet that enters */
    uint64_t delivered;      /* highest sequence delivered, plus one */
    gl_packet **heap;        /* in flight, earliest first */
    uint32_t count, capacity;
    gl_impaired statistics;
} gl_link;

typedef enum { GL_LINK_NOW, GL_LINK_LATER, GL_LINK_LOST, GL_LINK_NO_MEMORY } gl_link_result;

/* Puts a packet on the link at time `now`. GL_LINK_LATER: the link holds it. */
gl_link_result gl_link_enter(gl_link *link, gl_packet *packet, uint64_t now);
/* The earliest packet if it is due by `now`, else NULL. */
gl_packet *gl_link_due(gl_link *link, uint64_t now);
void gl_link_seed(gl_link *link, uint64_t seed);

/* ---- Ports ---- */

enum { GL_BATCH = 32, GL_CONTROL = 128 };

/* One direction of a socket: what recvmmsg fills and sendmmsg reads. */
typedef struct {
    struct mmsghdr messages[GL_BATCH];
    struct iovec vectors[GL_BATCH];
    gl_packet *packets[GL_BATCH];
    uint32_t count, next;
} gl_batch;

typedef struct {
    gl_packet *head, *tail;
    uint64_t bytes;
} gl_queue;

typedef struct {
    uint32_t number;
    int fd;
    uint32_t frame_limit;    /* bytes, without a VLAN tag */
    gl_port_config config;
    gl_queue queues[GL_QUEUES];
    uint64_t depth;          /* bytes in all queues */
    uint64_t free_at;        /* ns: when the link to the host has sent what it was given */
    gl_link tx_link, rx_link;
    gl_batch rx, tx;
    uint8_t (*control)[GL_CONTROL];
    gl_port_stats stats;
    uint8_t told;            /* events already reported, one bit per kind */
} gl_port;

struct gl_dataplane {
    gl_host host;
    gl_lock *lock;
    gl_pool pool;
    uint32_t frame_size;
    uint64_t seed;
    gl_port *ports[GL_PORTS];
    gl_port *list[GL_PORTS];
    uint32_t count;
    gl_process *process;
    gl_state *state;
    int event_fd, wake_fd;
    uint64_t clock;          /* ns: time of the packet in hand; never goes back */
};

/* Sends what is due from a port's queues until `now`. */
void gl_port_advance(gl_dataplane *dp, gl_port *port, uint64_t now);
/* When the port next has something to do, or UINT64_MAX. */
uint64_t gl_port_next(const gl_port *port);
/* Queues a packet, or drops it, or a lower class's in its place. */
void gl_port_enqueue(gl_dataplane *dp, gl_port *port, gl_packet *packet, uint32_t queue, uint64_t now);
/* Hands the batch to the socket. */
void gl_port_flush(gl_dataplane *dp, gl_port *port);
void gl_tell(gl_dataplane *dp, gl_port *port, uint32_t kind, int error, uint32_t length);

#endif
