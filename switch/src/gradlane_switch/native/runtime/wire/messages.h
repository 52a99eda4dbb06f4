/* SPDX-License-Identifier: Apache-2.0
 * What recvmmsg fills, and sendmmsg reads. */
#ifndef GL_MESSAGES_H
#define GL_MESSAGES_H

#include <linux/virtio_net.h>
#include <sys/socket.h>

#include "packets/packet.h"

enum {
    GL_BATCH = 128,          /* messages in a call */
    GL_CONTROL = 128,        /* bytes of what the kernel says beside a frame */
    GL_LONGEST = 65536,      /* bytes of a frame that offloads have left whole */
    GL_HEADERS = 128         /* bytes of the headers of packets that leave in one frame */
};

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

#endif
