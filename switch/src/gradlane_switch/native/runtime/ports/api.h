/* SPDX-License-Identifier: Apache-2.0
 * What Python sees of ports: what they are set to, what they count, what they report. */
#ifndef GL_PORTS_API_H
#define GL_PORTS_API_H

#include "base/api.h"
#include "wire/api.h"

typedef struct {
    uint64_t rate;           /* bit/s towards the host; 0: no limit */
    uint64_t buffer;         /* bytes that the port's queues share */
    uint64_t ecn;            /* bytes in a packet's queue above which it is marked; 0: never */
    uint32_t weights[8];     /* of deficit round robin, by queue; all 0: strict priority */
    uint32_t up;
    gl_impairment tx, rx;
} gl_port_config;

/* offered = enqueued + tail_dropped - pushed_out; enqueued = sent to the link + ended + pushed_out + flushed + waiting.
 * Bytes are those of packets when they are queued, before egress. */
typedef struct {
    gl_counter enqueued;
    gl_counter tail_dropped; /* found no place, or was pushed out */
    gl_counter pushed_out;   /* had a place, and lost it to another class or to a smaller buffer */
    gl_counter flushed;      /* waited when the port went down */
    gl_counter ended;        /* left, and egress dropped or recirculated them */
    gl_counter marked;       /* CE */
    gl_counter depth;        /* waiting now */
} gl_queue_stats;

typedef struct {
    gl_counter rx, tx;
    gl_queue_stats queues[8];
    uint64_t depth, depth_max;   /* bytes in all queues */
    gl_impaired tx_impaired, rx_impaired;
    /* Frames from the host that are not in `rx`: longer than the MTU, and not a train of packets that a network card
     * would cut it into; and those for which the kernel found no room in the port's socket. */
    gl_counter oversize;
    uint64_t socket_drops;
    /* Drops of frames that came from this port, each one in `rx` or a copy of it. */
    gl_counter rx_down;      /* the port was down */
    gl_counter program;      /* the program dropped it */
    gl_counter no_port;      /* the program sent it to a port that does not exist */
    gl_counter rx_no_memory; /* no packet buffer */
    /* Copies that the program made of them, and originals that ended when their copies had left. */
    gl_counter copies, replaced;
    gl_counter uncopied;     /* copies that found no packet buffer: their originals went on */
    /* Drops of frames to this port. */
    gl_counter tx_down;
    gl_counter tx_no_memory;
    gl_counter tx_errors;    /* the interface refused it */
    gl_counter cut;          /* frames on a link, or just come from it, when the port was removed */
    uint32_t up;             /* set so, and the interface is there */
} gl_port_stats;

enum { GL_EVENT_OVERSIZE = 1, GL_EVENT_DOWN = 2, GL_EVENT_UP = 3, GL_EVENT_TX_ERROR = 4 };

/* Written to the event descriptor, for the log. */
typedef struct {
    uint32_t kind;
    uint32_t port;
    int32_t error;
    uint32_t length;
} gl_event;

/* Kinds of ports, by what `fd` is: a bound AF_PACKET socket with PACKET_VNET_HDR; a connected UDP socket; a TAP
 * interface; a pcap file that gets what the port sends, or -1 for none. */
enum { GL_PORT_PACKET = 0, GL_PORT_UDP = 1, GL_PORT_TAP = 2, GL_PORT_FILE = 3 };

#endif
