/* SPDX-License-Identifier: Apache-2.0
 * The system calls of the forwarding thread, as the input has them: what arrives and when, what an interface refuses, how
 * late the thread wakes. The runtime is compiled with these names in place of the real ones. */
#include <errno.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>

#include "base/random.h"
#include "fuzz.h"

enum { DESCRIPTORS = 100000, MOST_WAITING = 256 };

static const uint64_t EPOCH = UINT64_C(1700000000000000000);

typedef struct {
    uint8_t *frame;
    uint32_t port, length;
} waiting_frame;

uint64_t fuzz_clock;
gl_dataplane *fuzz_dataplane;

static waiting_frame waiting[MOST_WAITING];
static uint32_t waiting_count;
static int stopped;

static uint64_t troubles;

void fuzz_system_begin(uint8_t trouble) {
    troubles = trouble;
    fuzz_clock = GL_SECOND;
    waiting_count = 0;
    stopped = 0;
}

/* Below `limit`; 0 if nothing is to go wrong. */
static uint32_t draw(uint32_t limit) {
    return troubles ? (uint32_t)(gl_random(&troubles) >> 32) % limit : 0;
}

int fuzz_descriptor(uint32_t port) {
    return DESCRIPTORS + (int)port;
}

void fuzz_arrive(uint32_t port, const struct virtio_net_hdr *offload, const uint8_t *frame, uint32_t length,
                 uint32_t behind) {
    if (waiting_count < MOST_WAITING) {
        size_t header = fuzz_dataplane->ports[port]->io->offload ? sizeof *offload : 0;
        uint8_t *copy = calloc(header + length + behind + 1, 1);
        memcpy(copy, offload, header);
        memcpy(copy + header, frame, length);
        waiting[waiting_count++] = (waiting_frame){copy, port, (uint32_t)header + length + behind};
    }
}

/* The oldest frame that waits at a descriptor, taken out; its frame is NULL if there is none. */
static waiting_frame take(int fd) {
    for (uint32_t i = 0; i < waiting_count; i++) {
        if (fuzz_descriptor(waiting[i].port) == fd) {
            waiting_frame found = waiting[i];
            memmove(&waiting[i], &waiting[i + 1], sizeof *waiting * (--waiting_count - i));
            return found;
        }
    }
    return (waiting_frame){0};
}

void fuzz_forget(uint32_t port) {
    for (waiting_frame gone; (gone = take(fuzz_descriptor(port))).frame;) {
        free(gone.frame);
    }
}

void fuzz_system_end(void) {
    while (waiting_count) {
        free(waiting[--waiting_count].frame);
    }
}

/* ---- Time ---- */

int fuzz_clock_gettime(clockid_t clock, struct timespec *time) {
    uint64_t now = fuzz_clock + (clock == CLOCK_REALTIME ? EPOCH : 0);
    *time = (struct timespec){(time_t)(now / GL_SECOND), (long)(now % GL_SECOND)};
    return 0;
}

int fuzz_clock_nanosleep(clockid_t clock, int flags, const struct timespec *request, struct timespec *rest) {
    (void)clock;
    (void)flags;
    (void)rest;
    uint64_t until = (uint64_t)request->tv_sec * GL_SECOND + (uint64_t)request->tv_nsec;
    fuzz_clock = until > fuzz_clock ? until : fuzz_clock;
    return 0;
}

int fuzz_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    (void)mask;
    if (!stopped && !fuzz_operations()) {
        stopped = 1;
        gl_stop(fuzz_dataplane, 10 * GL_SECOND - draw(10000) * UINT64_C(1000000));
    } else if (stopped && timeout) {
        fuzz_clock += (uint64_t)timeout->tv_sec * GL_SECOND + (uint64_t)timeout->tv_nsec;
    }
    int ready = 0;
    for (nfds_t i = 0; i < count; i++) {
        fds[i].revents = i == 0 ? POLLIN : 0;
        for (uint32_t j = 0; j < waiting_count; j++) {
            fds[i].revents |= fds[i].fd == fuzz_descriptor(waiting[j].port) ? POLLIN : 0;
        }
        ready += fds[i].revents != 0;
    }
    return ready;
}

/* ---- Frames in ---- */

static void *add_control(struct msghdr *header, size_t *used, int level, int type, size_t size) {
    struct cmsghdr *control = (struct cmsghdr *)((char *)header->msg_control + *used);
    *used += CMSG_SPACE(size);
    *control = (struct cmsghdr){.cmsg_len = CMSG_LEN(size), .cmsg_level = level, .cmsg_type = type};
    return CMSG_DATA(control);
}

/* As the kernel does, control messages are whole, and any that the port may have asked for. */
static void fill_control(struct msghdr *header, uint8_t kinds) {
    size_t used = 0;
    if (kinds & 1) {
        uint64_t at = fuzz_clock + EPOCH - draw(1 << draw(31));
        struct timespec time = {(time_t)(at / GL_SECOND), (long)(at % GL_SECOND)};
        memcpy(add_control(header, &used, SOL_SOCKET, SCM_TIMESTAMPNS, sizeof time), &time, sizeof time);
    }
    if (kinds & 2) {
        struct tpacket_auxdata aux = {.tp_vlan_tci = (uint16_t)draw(65536), .tp_vlan_tpid = (uint16_t)draw(65536)};
        aux.tp_status = draw(UINT32_MAX) | (kinds & 4 ? TP_STATUS_VLAN_VALID | TP_STATUS_VLAN_TPID_VALID : 0);
        memcpy(add_control(header, &used, SOL_PACKET, PACKET_AUXDATA, sizeof aux), &aux, sizeof aux);
    }
    header->msg_controllen = used;
}

/* Copies a frame to where the kernel would; how much of it found room. */
static uint32_t scatter(const waiting_frame *found, const struct iovec *vectors, size_t count) {
    uint32_t done = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t rest = found->length - done, part = rest < vectors[i].iov_len ? rest : (uint32_t)vectors[i].iov_len;
        memcpy(vectors[i].iov_base, found->frame + done, part);
        done += part;
    }
    return done;
}

int fuzz_recvmmsg(int fd, struct mmsghdr *messages, unsigned room, int flags, struct timespec *timeout) {
    (void)flags;
    (void)timeout;
    unsigned count = 0;
    for (waiting_frame found; count < room && (found = take(fd)).frame; count++) {
        struct msghdr *header = &messages[count].msg_hdr;
        messages[count].msg_len = found.length;
        header->msg_flags = scatter(&found, header->msg_iov, header->msg_iovlen) < found.length ? MSG_TRUNC : 0;
        fill_control(header, (uint8_t)draw(8));
        free(found.frame);
    }
    const int errors[] = {EAGAIN, ENETDOWN, ECONNREFUSED};
    errno = errors[count ? 0 : draw(3)];
    return count ? (int)count : -1;
}

ssize_t fuzz_readv(int fd, const struct iovec *vectors, int count) {
    waiting_frame found = take(fd);
    if (!found.frame) {
        errno = EAGAIN;
        return -1;
    }
    uint32_t length = scatter(&found, vectors, (size_t)count);
    free(found.frame);
    return (ssize_t)length;
}

/* ---- Frames out ---- */

/* What the kernel would read: a sanitizer looks at every byte. */
static size_t read_all(const struct iovec *vectors, size_t count) {
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        uint8_t *copy = malloc(vectors[i].iov_len + 1);
        memcpy(copy, vectors[i].iov_base, vectors[i].iov_len);
        free(copy);
        length += vectors[i].iov_len;
    }
    return length;
}

/* How many of the frames an interface takes; -1 and errno if none. */
static int taken(unsigned count) {
    static const int errors[] = {EAGAIN, ENOBUFS, ENETDOWN, EINTR, ECONNREFUSED, EMSGSIZE};
    uint32_t chance = draw(256);
    if (chance < 224) {
        return (int)count;
    }
    if (chance < 240) {
        return 1 + (int)(chance % count);
    }
    errno = errors[chance % 6];
    return -1;
}

int fuzz_sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
    (void)fd;
    (void)flags;
    int sent = taken(count);
    for (int i = 0; i < sent; i++) {
        read_all(messages[i].msg_hdr.msg_iov, messages[i].msg_hdr.msg_iovlen);
    }
    return sent;
}

ssize_t fuzz_writev(int fd, const struct iovec *vectors, int count) {
    (void)fd;
    return taken(1) < 0 ? -1 : (ssize_t)read_all(vectors, (size_t)count);
}
