/* SPDX-License-Identifier: Apache-2.0
 * A packet, wherever it is: on a link, in a program, in a queue. */
#ifndef GL_PACKET_H
#define GL_PACKET_H

#include <stddef.h>

#include "base/inline.h"
#include "packets/api.h"

struct gl_packet {
    gl_packet *next, *prev;
    uint64_t due;            /* ns: when it arrived, was queued, or is to be delivered */
    uint64_t sequence;
    uint64_t traced;         /* its number in traces; 0: nobody looks */
    void *kept;              /* in a queue: what egress needs to know of it; NULL: it has been through egress */
    uint8_t *data;
    uint32_t length;
    uint32_t size;           /* in a queue: bytes that it takes of the buffer */
    uint16_t port;           /* where it came from */
    uint16_t out, queue;     /* where it is to leave */
    uint8_t queued;          /* GL_IN_QUEUE ... */
    uint8_t marked;          /* it is to get CE */
    uint32_t origin;         /* of packets that came in one frame, and 0 of those that came alone */
    uint32_t part;           /* which of them it was */
    uint32_t kept_bytes;     /* that are worth fetching of what is kept */
    uint8_t room[];          /* GL_HEADROOM bytes, then the longest frame */
};

enum {
    GL_NOT_QUEUED = 0,
    GL_PASSED_QUEUE,
    GL_IN_QUEUE              /* it goes through egress without leaving its place */
};

/* A packet that has a buffer, and nothing else yet. */
GL_INLINE gl_packet *gl_fresh(gl_packet *packet) {
    packet->traced = 0;
    packet->origin = 0;
    packet->kept = NULL;
    packet->data = packet->room + GL_HEADROOM;
    packet->queued = GL_NOT_QUEUED;
    packet->marked = 0;
    return packet;
}

/* Bytes of a packet behind its headers, of which truncate leaves `limit`. */
GL_INLINE uint32_t gl_payload(const gl_packet *packet, uint32_t limit) {
    return packet->length < limit ? packet->length : limit;
}

#endif
