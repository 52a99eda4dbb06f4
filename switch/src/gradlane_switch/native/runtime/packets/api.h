/* SPDX-License-Identifier: Apache-2.0
 * What Python sees of packets: limits, and their events in traces. */
#ifndef GL_PACKETS_API_H
#define GL_PACKETS_API_H

#include "base/api.h"

enum {
    GL_QUEUES = 8,         /* queues per port; with strict priority 7 is served first */
    GL_PORTS = 512,        /* port numbers are 9 bits */
    GL_DROP_PORT = 511,
    GL_HEADROOM = 2048     /* bytes in front of a received frame, for headers that the program adds */
};

typedef struct gl_packet gl_packet;
typedef struct gl_host gl_host;

/* ---- Tracing ---- */

/* Events of the packets that are traced, each a word of (kind << 32 | number of words that follow), and those words. */
typedef struct {
    uint64_t *words;
    uint32_t capacity, used;
    uint32_t lost;         /* events that found no room */
} gl_tracer;

enum {
    GL_TRACE_PACKET = 1,     /* number, port, time in ns, length; then its first bytes */
    GL_TRACE_STATE = 2,      /* parser state */
    GL_TRACE_PARSED = 3,     /* error, bytes consumed */
    GL_TRACE_BRANCH = 4,     /* pipeline, node, whether the condition holds */
    GL_TRACE_TABLE = 5,      /* table; then the words of the key */
    GL_TRACE_ENTRY = 15,     /* whether the table hit, address of the entry */
    GL_TRACE_ACTION = 6,     /* action; then the words of its data */
    GL_TRACE_EGRESS = 7,     /* port: the egress pipeline begins */
    GL_TRACE_CLONE = 8,      /* session, copies */
    GL_TRACE_GROUP = 9,      /* multicast group, copies */
    GL_TRACE_AGAIN = 10,     /* 0 resubmitted, 1 recirculated */
    GL_TRACE_DIGEST = 11,    /* digest */
    GL_TRACE_DROPPED = 12,   /* reason, see below; port, queue */
    GL_TRACE_QUEUED = 13,    /* port, queue, length, bytes in the queue, bytes at the port */
    GL_TRACE_CONTROLLER = 14, /* length: a packet-in */
    GL_TRACE_SENT = 16,      /* port, queue, length */
    GL_TRACE_DEQUEUED = 17,  /* number, port, queue, ns that it waited: what follows is of that packet */
    GL_TRACE_FLUSHED = 18,   /* number, reason as of DROPPED, port, queue: another packet that waited */
    GL_TRACE_COUNT = 19,     /* counter, index */
    GL_TRACE_METER = 20,     /* meter, index, colour */
    GL_TRACE_READ = 21,      /* register, index; then the words of the value */
    GL_TRACE_WRITE = 22      /* the same */
};

enum {
    GL_DROP_INGRESS = 0, GL_DROP_EGRESS = 1, GL_DROP_NO_GROUP = 2, GL_DROP_NO_PORT = 3, GL_DROP_RUNT = 4,
    GL_DROP_TAIL = 5, GL_DROP_DOWN = 6, GL_DROP_ENDLESS = 7,
    GL_DROP_ASSERT = 8, GL_DROP_PUSHED_OUT = 9, GL_DROP_NO_MEMORY = 10, GL_DROP_TX_LINK = 11, GL_DROP_RX_LINK = 12
};

#endif
