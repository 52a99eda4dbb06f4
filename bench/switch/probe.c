/* SPDX-License-Identifier: Apache-2.0
 * A steady stream through a switch, and what happens to it: one process sends, stamps and receives.
 *
 *   probe IN OUT PACKETS-PER-SECOND HEX      until SIGTERM; then prints one line:
 *   SENT RECEIVED LONGEST-GAP LONGEST-DELAY P50 P99 P999    times in ns; delays from sending to the other interface
 *
 * The last 8 bytes of the frame are overwritten with the time of sending. */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

enum { LONGEST = 2048, MOST = 1 << 23, BUFFER = 8 << 20 };

static volatile sig_atomic_t ended;

static void end(int number) {
    (void)number;
    ended = 1;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int open_interface(const char *name, int receives) {
    int fd = socket(AF_PACKET, SOCK_RAW, 0), one = 1, buffer = BUFFER;
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(name)};
    address.sll_protocol = receives ? htons(ETH_P_ALL) : 0;
    if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one) ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) ||
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) ||
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) ||
        bind(fd, (struct sockaddr *)&address, sizeof address)) {
        fail(name);
    }
    return fd;
}

static int compare(const void *a, const void *b) {
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

typedef struct {
    uint64_t *delays;
    uint64_t count, last, gap;
} arrivals;

static void receive(int fd, size_t size, arrivals *to) {
    static uint8_t frame[LONGEST];
    char control[256];
    for (;;) {
        struct iovec vector = {frame, sizeof frame};
        struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control,
                                 .msg_controllen = sizeof control};
        ssize_t length = recvmsg(fd, &message, MSG_DONTWAIT);
        if (length < 0) {
            return;
        }
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
            if ((size_t)length != size || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS ||
                to->count == MOST) {
                continue;
            }
            struct timespec time;
            uint64_t sent;
            memcpy(&time, CMSG_DATA(c), sizeof time);
            memcpy(&sent, frame + size - sizeof sent, sizeof sent);
            uint64_t at = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
            to->gap = to->last && at - to->last > to->gap ? at - to->last : to->gap;
            to->last = at;
            to->delays[to->count++] = at > sent ? at - sent : 0;
        }
    }
}

int main(int count, char **words) {
    if (count != 5) {
        fprintf(stderr, "usage: probe IN OUT RATE HEX\n");
        return 2;
    }
    static uint8_t frame[LONGEST];
    size_t size = strlen(words[4]) / 2;
    for (size_t i = 0; i < size && i < LONGEST; i++) {
        unsigned octet;
        if (sscanf(words[4] + 2 * i, "%2x", &octet) != 1) {
            return 2;
        }
        frame[i] = (uint8_t)octet;
    }
    int in = open_interface(words[1], 0), out = open_interface(words[2], 1);
    arrivals to = {.delays = calloc(MOST, sizeof(uint64_t))};
    uint64_t sent = 0, interval = (uint64_t)(1e9 / atof(words[3]));
    signal(SIGTERM, end);
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    printf("ready\n");
    fflush(stdout);
    for (uint64_t next = clock_ns(CLOCK_MONOTONIC); !ended; next += interval) {
        /* A sender that was late goes on from now: a burst would be queued behind itself. */
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        next = now > next + interval ? now : next;
        struct timespec until = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        uint64_t stamp = clock_ns(CLOCK_REALTIME);
        memcpy(frame + size - sizeof stamp, &stamp, sizeof stamp);
        sent += send(in, frame, size, 0) == (ssize_t)size;
        receive(out, size, &to);
    }
    struct timespec moment = {0, 100000000};
    nanosleep(&moment, NULL);
    receive(out, size, &to);
    if (!to.count) {
        printf("%llu 0 0 0 0 0 0\n", (unsigned long long)sent);
        return 0;
    }
    qsort(to.delays, to.count, sizeof *to.delays, compare);
    printf("%llu %llu %llu %llu %llu %llu %llu\n", (unsigned long long)sent, (unsigned long long)to.count,
           (unsigned long long)to.gap, (unsigned long long)to.delays[to.count - 1],
           (unsigned long long)to.delays[to.count / 2], (unsigned long long)to.delays[to.count * 99 / 100],
           (unsigned long long)to.delays[to.count * 999 / 1000]);
    return 0;
}
