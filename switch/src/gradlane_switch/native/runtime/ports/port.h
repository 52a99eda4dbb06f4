/* SPDX-License-Identifier: Apache-2.0
 * Packet buffers, links and ports, as the forwarder and the statistics see them. */
#ifndef GL_PORT_H
#define GL_PORT_H

#include <linux/virtio_net.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/lock.h"
#include "program/program.h"

static const uint64_t GL_SECOND = 1000000000u;

static inline void gl_note(gl_traffic *traffic, uint32_t length) {
    traffic->packets++;
    traffic->bytes += length;
}

/* ---- Packet buffers ---- */

/* Packets that are allocated together. With one, a sanitizer sees where each ends. */
#ifndef GL_SLAB_PACKETS
#define GL_SLAB_PACKETS 128
#endif

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

/* What programs keep of packets that wait: blocks of one size at a time, because they are one program's. */
typedef struct {
    void *free;              /* chained through their first word */
    size_t size;             /* bytes */
} gl_store;

/* A copy of `size` bytes; NULL for want of memory. Of another size only when all have been put back. */
void *gl_store_keep(gl_store *store, const void *state, size_t size);
void gl_store_clear(gl_store *store);

static inline void gl_store_put(gl_store *store, void *kept) {
    if (kept) {
        *(void **)kept = store->free;
        store->free = kept;
    }
}

/* ---- Links: what happens to packets in one direction ---- */

typedef struct {
    gl_impairment config;
    int impaired;            /* the configuration does anything */
    uint64_t seed;
    uint64_t sequence;       /* of the next packet that enters */
    int bad;                 /* the state of burst loss */
    uint64_t delivered;      /* highest sequence delivered, plus one */
    gl_packet **heap;        /* in flight, earliest first */
    uint32_t count, capacity;
    gl_impaired statistics;
} gl_link;

typedef enum { GL_LINK_NOW, GL_LINK_LATER, GL_LINK_LOST, GL_LINK_NO_MEMORY } gl_link_result;

void gl_link_configure(gl_link *link, gl_impairment config);
/* Puts a packet on the link at time `now`. GL_LINK_NOW: it has arrived, and then so has `twin` unless that is NULL;
 * GL_LINK_LATER: the link holds it, and its twin. */
gl_link_result gl_link_enter(gl_link *link, gl_pool *pool, gl_packet *packet, uint64_t now, gl_packet **twin);
/* The earliest packet if it is due by `now`, else NULL. */
gl_packet *gl_link_due(gl_link *link, uint64_t now);

/* ---- Ports ---- */

enum { GL_BATCH = 128, GL_CONTROL = 128, GL_VLAN_TAG = 4, GL_LONGEST = 65536, GL_HEADERS = 128 };

/* Where a message of recvmmsg goes: to a packet's buffer, and what is longer (a frame that offloads have left whole,
 * to be cut into packets) to `rest`. */
typedef struct {
    struct virtio_net_hdr offload;
    gl_packet *packet;
    uint8_t *rest;           /* GL_LONGEST bytes */
    uint8_t control[GL_CONTROL];
    struct iovec vectors[3]; /* those three, in that order */
} gl_slot;

typedef struct {
    struct mmsghdr messages[GL_BATCH];
    gl_slot slots[GL_BATCH];
} gl_inbox;

/* What sendmmsg reads: each message is a packet, or a run of packets that leave in one frame. */
typedef struct {
    struct mmsghdr messages[GL_BATCH];
    struct virtio_net_hdr offloads[GL_BATCH];
    uint8_t headers[GL_BATCH][GL_HEADERS];
    struct iovec vectors[2 * GL_BATCH];
    gl_packet **packets[GL_BATCH];   /* of a message */
    uint32_t counts[GL_BATCH];
} gl_outbox;

typedef struct {
    gl_packet *head, *tail;
    uint64_t bytes, packets;
    uint64_t deficit;        /* bytes that it may still send in its turn */
} gl_queue;

typedef struct gl_port gl_port;

/* How a kind of port gets frames in and out. */
typedef struct {
    int offload;             /* frames have a virtio_net_hdr in front */
    /* As recvmmsg does: fills the first `room` messages; how many, or -1 and errno. */
    int (*receive)(gl_port *port, gl_inbox *inbox, uint32_t room);
    /* As sendmmsg does: sends messages [first, end); how many, or -1 and errno. */
    int (*send)(gl_port *port, gl_outbox *outbox, uint32_t first, uint32_t end);
    /* Frames that the kernel has dropped since the last call, because too many waited. */
    uint64_t (*drops)(gl_port *port);
} gl_io;

/* By GL_PORT_PACKET ... */
extern const gl_io gl_kinds[4];

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
    uint8_t told;            /* events already reported, one bit per kind */
    uint32_t udp_drops;      /* the kernel's count when it was last read */
};

struct gl_dataplane {
    gl_host host;
    gl_lock *lock;
    gl_pool pool;
    gl_store store;
    uint32_t frame_size;
    uint64_t seed;
    gl_port *ports[GL_PORTS];
    gl_port *list[GL_PORTS];
    uint32_t count;
    uint32_t generation;     /* of the list of ports */
    gl_port_stats elsewhere; /* counts of packets that came from no port */
    uint64_t epoch;
    gl_process *process, *traced;
    gl_state *state;
    gl_tracer *tracer;       /* gets what `traced` says of packets from `trace_port`; NULL: none are traced */
    uint32_t trace_port;     /* GL_PORTS: all */
    uint64_t trace_first, trace_last;   /* numbers of packets in this trace */
    int settling;            /* the program is being replaced: nothing new waits for egress */
    int event_fd, wake_fd;
    uint64_t stop_at;        /* ns: nothing comes in any more, and forwarding ends then at the latest; 0: it runs */
    uint64_t clock;          /* ns: time of what happens now; never goes back */
    uint64_t quiet;          /* ns: until then nothing leaves a queue, and nothing arrives from a link */
    uint64_t longest_wait;   /* ns that packets had to wait for a change of tables or ports */
    uint64_t coalesce;       /* ns: the least time from one round of forwarding to the next */
    uint32_t origins;        /* how many frames have been cut */
    uint8_t *rests;
    gl_inbox inbox;
    gl_outbox outbox;
};

/* NULL for want of memory. */
gl_port *gl_port_new(uint32_t number, uint32_t kind, int fd, uint32_t frame_limit, uint64_t seed);
/* Drops all that waits, either way, and counts it. */
void gl_port_empty(gl_dataplane *dp, gl_port *port);
void gl_port_free(gl_dataplane *dp, gl_port *port);
void gl_port_apply(gl_dataplane *dp, gl_port *port, uint64_t at, gl_port_config config);
/* When a packet next leaves a queue, or UINT64_MAX. */
static inline uint64_t gl_port_departure(const gl_port *port) {
    return port->waiting ? port->free_at : UINT64_MAX;
}
/* Takes a packet from its queue then, through egress, to `gl_port_send`. */
void gl_port_depart(gl_dataplane *dp, gl_port *port);
/* Hands what the link delivers until `now` to the interface. */
void gl_port_deliver(gl_dataplane *dp, gl_port *port, uint64_t now);
/* When the port next has something to do, or UINT64_MAX. */
uint64_t gl_port_next(const gl_port *port);
/* Queues a packet unless it can leave now; or drops it, or others in its place. See gl_host. */
gl_admission gl_port_enqueue(gl_dataplane *dp, gl_port *port, gl_packet *packet, const void *state, size_t bytes);
/* Puts a packet on the link; the wire is free. */
void gl_port_send(gl_dataplane *dp, gl_port *port, gl_packet *packet);
/* Takes what waits through the egress of the program, where it waits. */
void gl_port_settle(gl_dataplane *dp, gl_port *port);
/* Appends a packet that has been through egress to its queue, or takes one out. */
void gl_port_append(gl_port *port, gl_packet *packet);
void gl_port_unlink(gl_port *port, gl_packet *packet);
/* Says that something will leave a queue or arrive from a link at a time in ns. */
static inline void gl_expect(gl_dataplane *dp, uint64_t at) {
    dp->quiet = at < dp->quiet ? at : dp->quiet;
}
/* Runs the program on a packet that came in, or left its queue, at a time in ns. */
void gl_process_packet(gl_dataplane *dp, gl_packet *packet, uint64_t at);
/* Whom to tell of a packet; NULL: nobody. */
static inline gl_tracer *gl_tracer_of(const gl_dataplane *dp, const gl_packet *packet) {
    return packet->traced >= dp->trace_first ? dp->tracer : NULL;
}
/* Fills the port's list of arrived packets if it is empty. `offset`: of the clock of the kernel's times to ours, ns. */
void gl_port_receive(gl_dataplane *dp, gl_port *port, uint64_t offset, uint64_t now);
/* Hands what is leaving to the interface. */
void gl_port_flush(gl_dataplane *dp, gl_port *port);
/* Tells the program whether there is a port of that number, and it is up. The caller has the lock. */
void gl_port_told(gl_dataplane *dp, uint32_t number);
/* Wakes the forwarding thread. */
void gl_wake(const gl_dataplane *dp);
/* Reports an event for the log, once. */
void gl_tell(gl_dataplane *dp, gl_port *port, uint32_t kind, int error, uint32_t length);

/* Makes packets of a frame that `slot` has whole: `length` bytes from packet->data on, the rest behind the first `room`
 * of them in slot->rest. Completes checksums. NULL if the header contradicts itself; else the first, chained by `next`.
 * `missing` counts the packets that there was no buffer for. */
gl_packet *gl_offload_cut(gl_pool *pool, gl_slot *slot, uint32_t length, uint32_t room, uint32_t origin,
                          gl_traffic *missing);
/* How many packets, from the first on, can leave in one frame. Fills in what that needs: a header of GL_HEADERS bytes,
 * and `used` vectors: one, or one more than there are packets. */
uint32_t gl_offload_join(gl_packet **packets, uint32_t count, struct virtio_net_hdr *offload, uint8_t *header,
                         struct iovec *vectors, uint32_t *used);

/* Sets CE (RFC 3168) in an ECN-capable IPv4 or IPv6 frame; 0 if it is not one, or has it already. */
int gl_mark_ce(uint8_t *frame, uint32_t length);

#endif
