/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets around an engine: UDP_SEGMENT out, UDP_GRO in where it is on (Linux 4.18 and 5.0), one poll loop. Where the
 * kernel or the interface refuses segmentation, each datagram is a message of its own. One sendmmsg carries a batch.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "io.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { RECEIVE_BATCH = 8, RECEIVE_BYTES = 65536, ROUNDS = 4 };

struct gl_runner {
    gl_engine *engine;
    pthread_mutex_t lock;
    struct pollfd *sockets; /* and the wake-up after them */
    int count, wake, notify;
    uint16_t port;
    bool segmentation, stopping;
    uint64_t send_errors;
    int last_error;
    uint8_t (*buffers)[RECEIVE_BYTES];
};

static uint64_t clock_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void signal_fd(int fd) {
    const uint64_t one = 1;
    /* Fails only when the counter is full, and then the reader is being woken anyway. */
    if (write(fd, &one, sizeof one) < 0) return;
}

gl_runner *gl_runner_new(gl_engine *engine, const int *sockets, int count, uint16_t port, int notify) {
    gl_runner *r = calloc(1, sizeof *r);
    if (!r || count < 1) return free(r), NULL;
    r->engine = engine, r->count = count, r->port = port, r->notify = notify, r->segmentation = true;
    r->buffers = malloc(RECEIVE_BATCH * sizeof *r->buffers);
    r->sockets = calloc((size_t)count + 1, sizeof *r->sockets);
    r->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutexattr_t inherit; /* a caller that holds the lock runs at the loop's priority meanwhile */
    pthread_mutexattr_init(&inherit);
    pthread_mutexattr_setprotocol(&inherit, PTHREAD_PRIO_INHERIT);
    if (!r->buffers || !r->sockets || r->wake < 0 || pthread_mutex_init(&r->lock, &inherit)) {
        if (r->wake >= 0) close(r->wake);
        return free(r->buffers), free(r->sockets), free(r), NULL;
    }
    for (int i = 0; i < count; i++) r->sockets[i] = (struct pollfd){.fd = sockets[i], .events = POLLIN};
    r->sockets[count] = (struct pollfd){.fd = r->wake, .events = POLLIN};
    return r;
}

void gl_runner_free(gl_runner *r) {
    if (!r) return;
    gl_engine_free(r->engine);
    close(r->wake);
    pthread_mutex_destroy(&r->lock);
    free(r->buffers), free(r->sockets), free(r);
}

static void receive_one(gl_runner *r, const struct mmsghdr *message, uint64_t now) {
    const uint8_t *bytes = message->msg_hdr.msg_iov->iov_base;
    uint32_t left = message->msg_len, segment = left;
    int congested = 0;
    struct msghdr *header = (struct msghdr *)&message->msg_hdr;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            int size;
            memcpy(&size, CMSG_DATA(c), sizeof size);
            segment = (uint32_t)size;
        } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
            congested = (*CMSG_DATA(c) & 3) == 3;
    }
    for (; left; left -= segment, bytes += segment) {
        if (segment > left || !segment) segment = left;
        gl_receive(r->engine, bytes, segment, congested, now);
    }
}

/* Returns whether there may be more. */
static bool receive(gl_runner *r, int fd) {
    struct mmsghdr messages[RECEIVE_BATCH];
    struct iovec iov[RECEIVE_BATCH];
    char control[RECEIVE_BATCH][CMSG_SPACE(sizeof(int)) * 2];
    for (int i = 0; i < RECEIVE_BATCH; i++) {
        iov[i] = (struct iovec){r->buffers[i], RECEIVE_BYTES};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1, .msg_control = control[i],
                                              .msg_controllen = sizeof control[i]};
    }
    const int n = recvmmsg(fd, messages, RECEIVE_BATCH, MSG_DONTWAIT, NULL);
    if (n <= 0) return false; /* nothing there, or an ICMP error that concerns a datagram already gone */
    const uint64_t now = clock_us();
    for (int i = 0; i < n; i++) receive_one(r, &messages[i], now);
    return n == RECEIVE_BATCH;
}

/* Messages for what of a batch begins with datagram `first`: one for each run of equal tags, or without segmentation one for
 * each datagram. */
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

static void prepare(const gl_runner *r, const gl_batch *b, unsigned first, struct sockaddr_in *to, outgoing *o) {
    int at = 0;
    o->count = 0;
    for (unsigned n = 0; n < b->datagrams;) {
        const int start = at;
        unsigned run = 0;
        do {
            /* A header begins the next datagram. */
            for (at++; at < b->iov_count && b->iov[at].iov_base != b->headers[n + run + 1];) at++;
            run++;
        } while (n + run < b->datagrams && n >= first && r->segmentation && b->tos[n + run] == b->tos[n]);
        if (n >= first) {
            struct msghdr *m = &o->messages[o->count].msg_hdr;
            *m = (struct msghdr){.msg_name = to, .msg_namelen = sizeof *to,
                                 .msg_iov = (struct iovec *)&b->iov[start], .msg_iovlen = (size_t)(at - start),
                                 .msg_control = o->control[o->count]};
            const int tos = b->tos[n];
            if (run > 1) add_option(m, IPPROTO_UDP, UDP_SEGMENT, &b->segment, sizeof b->segment);
            if (tos) add_option(m, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
            o->runs[o->count++] = run;
        }
        n += run;
    }
}

static void send_batch(gl_runner *r, const gl_batch *b) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(r->port), .sin_addr.s_addr = htonl(b->address)};
    outgoing o;
    for (unsigned sent = 0; sent < b->datagrams;) {
        prepare(r, b, sent, &to, &o);
        const int done = sendmmsg(r->sockets[0].fd, o.messages, o.count, 0);
        for (int i = 0; i < done; i++) sent += o.runs[i];
        if (done >= 0) continue;
        if (o.runs[0] > 1 && (errno == EIO || errno == EINVAL || errno == EMSGSIZE)) {
            r->segmentation = false;
            continue;
        }
        r->send_errors += o.runs[0], r->last_error = errno;
        sent += o.runs[0];
    }
}

/* Returns an errno, or 0. */
static int wait_for(struct pollfd *descriptors, int count, uint64_t us) {
    const struct timespec timeout = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    return ppoll(descriptors, (nfds_t)count, &timeout, NULL) < 0 && errno != EINTR ? errno : 0;
}

int gl_runner_run(gl_runner *r) {
    prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul); /* ns: pacing needs finer sleeps than the default 50 us */
    gl_batch *batch = malloc(sizeof *batch);
    if (!batch) return ENOMEM;
    int error = 0;
    pthread_mutex_lock(&r->lock);
    while (!r->stopping && !error) {
        bool more = false, received = false;
        for (int round = 0; round < ROUNDS; round++) {
            more = false;
            for (int i = 0; i < r->count; i++) {
                if (!r->sockets[i].revents) continue;
                received = true;
                if (receive(r, r->sockets[i].fd))
                    more = true;
                else
                    r->sockets[i].revents = 0;
            }
            uint64_t now = clock_us();
            while (gl_transmit(r->engine, batch, now)) send_batch(r, batch), now = clock_us();
            if (!more) break;
        }
        if (gl_engine_has_event(r->engine)) signal_fd(r->notify);
        const uint64_t now = clock_us(), deadline = gl_deadline(r->engine, now);
        uint64_t wait = more ? 0 : deadline == UINT64_MAX ? 1000000 : deadline - now;
        const uint64_t patience = received ? gl_patience(r->engine) : 0;
        pthread_mutex_unlock(&r->lock);
        if (wait && patience) {
            error = wait_for(&r->sockets[r->count], 1, wait < patience ? wait : patience);
            wait = wait < patience ? 0 : wait - patience;
        }
        if (!error) error = wait_for(r->sockets, r->count + 1, r->sockets[r->count].revents ? 0 : wait);
        if (r->sockets[r->count].revents) {
            uint64_t drained;
            if (read(r->wake, &drained, sizeof drained) < 0 && errno != EAGAIN) error = errno;
        }
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    free(batch);
    return error;
}

void gl_runner_stop(gl_runner *r) {
    pthread_mutex_lock(&r->lock);
    r->stopping = true;
    pthread_mutex_unlock(&r->lock);
    signal_fd(r->wake);
}

int gl_runner_submit(gl_runner *r, const gl_submission *submission) {
    pthread_mutex_lock(&r->lock);
    const int result = gl_submit(r->engine, submission, clock_us());
    pthread_mutex_unlock(&r->lock);
    signal_fd(r->wake);
    return result;
}

gl_event *gl_runner_event(gl_runner *r) {
    pthread_mutex_lock(&r->lock);
    gl_event *event = gl_next_event(r->engine);
    pthread_mutex_unlock(&r->lock);
    return event;
}

int gl_runner_idle(gl_runner *r) {
    pthread_mutex_lock(&r->lock);
    const int idle = gl_engine_idle(r->engine);
    pthread_mutex_unlock(&r->lock);
    return idle;
}

void gl_runner_statistics(gl_runner *r, gl_statistics *statistics) {
    pthread_mutex_lock(&r->lock);
    *statistics = *gl_engine_statistics(r->engine);
    pthread_mutex_unlock(&r->lock);
}

void gl_runner_path_state(gl_runner *r, uint16_t rank, uint64_t *rate, uint32_t *srtt) {
    pthread_mutex_lock(&r->lock);
    gl_path_state(r->engine, rank, rate, srtt);
    pthread_mutex_unlock(&r->lock);
}

unsigned gl_runner_routes(gl_runner *r, uint16_t rank, gl_route *routes) {
    pthread_mutex_lock(&r->lock);
    const unsigned count = gl_routes(r->engine, rank, routes);
    pthread_mutex_unlock(&r->lock);
    return count;
}

void gl_runner_send_errors(gl_runner *r, uint64_t *count, int *last) {
    pthread_mutex_lock(&r->lock);
    *count = r->send_errors, *last = r->last_error;
    pthread_mutex_unlock(&r->lock);
}
