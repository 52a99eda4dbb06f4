/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * One sendmmsg carries a batch, one recvmmsg takes in several. A batch is a message of its own for each run of equal tags,
 * cut into datagrams by the kernel (UDP_SEGMENT); where that is refused, each datagram is a message.
 */
#define _GNU_SOURCE
#include "io/datagrams.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "io/clock.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum {
    FULL_WAIT = 100,   /* us until a full socket is tried again */
    BUFFERS = 256,     /* 16 MiB; while all others are held, what comes is copied */
    HELD_LEAST = 16384 /* bytes that come in a buffer which is worth to be held */
};

/* The messages of a batch. */
typedef struct {
    struct mmsghdr messages[GL_BATCH];
    unsigned runs[GL_BATCH];
    _Alignas(struct cmsghdr) char control[GL_BATCH][CMSG_SPACE(sizeof(uint16_t)) + CMSG_SPACE(sizeof(int))];
    unsigned count;
} outgoing;

static void add_option(struct msghdr *m, int level, int type, const void *value, size_t size) {
    struct cmsghdr *c = (struct cmsghdr *)((char *)m->msg_control + m->msg_controllen);
    c->cmsg_level = level, c->cmsg_type = type, c->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(c), value, size);
    m->msg_controllen += CMSG_SPACE(size);
}

/* Whether a datagram is the last of its batch, and so short that it has room behind `run` others. */
static bool last_fits(const gl_batch *b, unsigned number, unsigned run) {
    size_t bytes = (size_t)run * b->segment;
    for (int i = 1; i <= b->pieces[number]; i++) bytes += b->iov[b->iov_count - i].iov_len;
    return number + 1u == b->datagrams && bytes <= GL_BATCH_BYTES;
}

/* What of the batch begins with datagram `first`, as messages of `most` datagrams of the segment's bytes at most. */
static void prepare(const outlet *out, const gl_batch *b, unsigned first, unsigned most, outgoing *o) {
    struct sockaddr_storage *to = &out->peers[b->to];
    const bool ipv6 = to->ss_family == AF_INET6;
    int at = 0;
    o->count = 0;
    for (unsigned n = 0; n < b->datagrams;) {
        const int start = at;
        unsigned run = 0;
        do {
            at += b->pieces[n + run++];
        } while (n + run < b->datagrams && n >= first && (run < most || (most > 1 && last_fits(b, n + run, run))) &&
                 b->tos[n + run] == b->tos[n]);
        if (n >= first) {
            struct msghdr *m = &o->messages[o->count].msg_hdr;
            *m = (struct msghdr){.msg_name = to,
                                 .msg_namelen = ipv6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
                                 .msg_iov = (struct iovec *)&b->iov[start], .msg_iovlen = (size_t)(at - start),
                                 .msg_control = o->control[o->count]};
            const int tos = b->tos[n];
            if (run > 1) add_option(m, IPPROTO_UDP, UDP_SEGMENT, &b->segment, sizeof b->segment);
            if (tos) add_option(m, ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, ipv6 ? IPV6_TCLASS : IP_TOS, &tos, sizeof tos);
            o->runs[o->count++] = run;
        }
        n += run;
    }
}

/* How many datagrams a message may hold. */
static unsigned most_segments(const outlet *out, const gl_batch *b) {
    const unsigned fit = GL_BATCH_BYTES / b->segment;
    return !out->segmentation || fit < 1 ? 1 : fit;
}

void send_batch(outlet *out, const gl_batch *b) {
    outgoing o;
    unsigned most = most_segments(out, b);
    for (unsigned sent = 0; sent < b->datagrams;) {
        prepare(out, b, sent, most, &o);
        const int done = sendmmsg(out->fd, o.messages, o.count, MSG_DONTWAIT);
        for (int i = 0; i < done; i++) sent += o.runs[i];
        if (done >= 0) continue;
        if (o.runs[0] > 1 && (errno == EIO || errno == EINVAL || errno == EMSGSIZE)) {
            /* EIO: the interface has no checksum offload, and never will. Anything else concerns this batch. */
            if (errno == EIO) out->segmentation = false;
            out->unsegmented++;
            most = 1;
            continue;
        }
        out->last_error = errno;
        if (errno == EAGAIN) {
            /* The interface is slower than its engine was told. Others wait for this thread: what is left counts as lost. */
            out->full_until = gl_now() + FULL_WAIT;
            out->errors += b->datagrams - sent;
            return;
        }
        out->errors += o.runs[0];
        sent += o.runs[0];
    }
}

bool inlet_new(inlet *in) { return (in->buffers = buffers_new(BUFFERS)) && inlet_refill(in); }

void inlet_free(inlet *in) { buffers_leave(in->buffers); }

bool inlet_refill(inlet *in) {
    while (in->count < RECEIVE_BATCH && (in->taken[in->count] = buffer_take(in->buffers))) in->count++;
    return in->count > 0;
}

static void take_message(const struct mmsghdr *message, take_train *take, void *context, uint64_t now) {
    uint32_t segment = message->msg_len;
    bool congested = false;
    struct msghdr *header = (struct msghdr *)&message->msg_hdr;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
        int value;
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            memcpy(&value, CMSG_DATA(c), sizeof value);
            if (value > 0 && (uint32_t)value < segment) segment = (uint32_t)value;
        } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
            congested = (*CMSG_DATA(c) & 3) == 3;
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
            memcpy(&value, CMSG_DATA(c), sizeof value);
            congested = (value & 3) == 3;
        }
    }
    take(context, header->msg_iov->iov_base, message->msg_len, segment, congested, message->msg_len >= HELD_LEAST, now);
}

int receive_batch(int fd, inlet *in, take_train *take, void *context) {
    struct mmsghdr messages[RECEIVE_BATCH];
    struct iovec iov[RECEIVE_BATCH];
    _Alignas(struct cmsghdr) char control[RECEIVE_BATCH][CMSG_SPACE(sizeof(int)) * 2];
    for (int i = 0; i < in->count; i++) {
        iov[i] = (struct iovec){in->taken[i], BUFFER_BYTES};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1, .msg_control = control[i],
                                              .msg_controllen = sizeof control[i]};
    }
    const int n = recvmmsg(fd, messages, (unsigned)in->count, MSG_DONTWAIT, NULL);
    if (n <= 0) return 0; /* nothing there, or an ICMP error that concerns a datagram already gone */
    const uint64_t now = gl_now();
    int kept = 0;
    for (int i = 0; i < in->count; i++) {
        if (i < n) take_message(&messages[i], take, context, now);
        uint8_t *next = i < n ? buffer_exchange(in->buffers, in->taken[i]) : in->taken[i];
        if (next) in->taken[kept++] = next;
    }
    in->count = kept;
    return n;
}
