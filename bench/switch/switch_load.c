/* SPDX-License-Identifier: Apache-2.0
 * The benchmark's load: frames onto an interface at a rate, and how long they take to another one.
 *
 *   switch_load send INTERFACE PACKETS-PER-SECOND SECONDS TRAIN HEX   prints how many datagrams it sent
 *   switch_load probe FROM TO PACKETS-PER-SECOND SECONDS HEX          prints a latency in ns per datagram that arrived
 *   switch_load flood OFFSET HEX INTERFACE...                         as fast as it can to each in turn, until SIGTERM
 *
 * HEX is a frame with a UDP datagram in IPv4. With a TRAIN above 1, so many of them go in one frame for a card to segment.
 * Latencies are from before the system call to the kernel's receive timestamp. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

enum { BATCH = 32, LONGEST = 65536, HEADERS = 14 + 20 + 8, SEND_BUFFER = 8 << 20, RECEIVE_BUFFER = 512 << 20, UDP_L4 = 5 };

typedef struct {
    struct virtio_net_hdr offload;
    uint8_t frame[LONGEST];
    size_t size;
} load;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int open_interface(const char *name, int receives, int offload) {
    int fd = socket(AF_PACKET, SOCK_RAW, 0), one = 1, room = receives ? RECEIVE_BUFFER : SEND_BUFFER;
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(name)};
    address.sll_protocol = receives ? htons(ETH_P_IP) : 0;
    struct packet_mreq promiscuous = {.mr_ifindex = address.sll_ifindex, .mr_type = PACKET_MR_PROMISC};
    if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one) ||
        (offload && setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one)) ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) ||
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) ||
        setsockopt(fd, SOL_SOCKET, receives ? SO_RCVBUFFORCE : SO_SNDBUFFORCE, &room, sizeof room) ||
        bind(fd, (struct sockaddr *)&address, sizeof address)) {
        fail(name);
    }
    return fd;
}

static uint64_t now_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint32_t sum(const uint8_t *bytes, size_t count, uint32_t from) {
    for (size_t i = 0; i < count; i += 2) {
        from += (uint32_t)bytes[i] << 8 | bytes[i + 1];
    }
    from = (from & 0xffff) + (from >> 16);
    return (from & 0xffff) + (from >> 16);
}

static void put16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void read_frame(load *made, const char *hex) {
    made->size = strlen(hex) / 2;
    for (size_t i = 0; i < made->size && i < LONGEST; i++) {
        unsigned octet;
        if (sscanf(hex + 2 * i, "%2x", &octet) != 1) {
            exit(2);
        }
        made->frame[i] = (uint8_t)octet;
    }
}

/* Makes one frame of `train` datagrams, for a card to cut into such as there was. */
static void lengthen(load *made, uint32_t train) {
    uint32_t payload = (uint32_t)made->size - HEADERS, length = 8 + train * payload;
    uint8_t *network = made->frame + 14, *transport = network + 20;
    put16(network + 2, 20 + length);
    put16(network + 10, 0);
    put16(network + 10, ~sum(network, 20, 0));
    put16(transport + 4, length);
    put16(transport + 6, sum(network + 12, 8, IPPROTO_UDP + length));
    made->size = HEADERS + train * payload;
    made->offload = (struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .gso_type = UDP_L4, .hdr_len = HEADERS,
                                            .gso_size = (uint16_t)payload, .csum_start = 34, .csum_offset = 6};
}

static void send_frames(const char *name, double rate, double seconds, uint32_t train, const char *hex) {
    static load made;
    read_frame(&made, hex);
    if (train > 1) {
        lengthen(&made, train);
    }
    int fd = open_interface(name, 0, train > 1);
    struct iovec vectors[] = {{&made.offload, sizeof made.offload}, {made.frame, made.size}};
    struct mmsghdr messages[BATCH];
    for (int i = 0; i < BATCH; i++) {
        messages[i] = (struct mmsghdr){
            .msg_hdr = {.msg_iov = vectors + (train == 1), .msg_iovlen = train == 1 ? 1 : 2},
        };
    }
    rate /= train;
    uint64_t sent = 0, wanted = (uint64_t)(rate * seconds), start = now_ns(CLOCK_MONOTONIC);
    while (sent < wanted) {
        double due = (double)(now_ns(CLOCK_MONOTONIC) - start) * 1e-9 * rate - (double)sent;
        if (due < 1) {
            continue;
        }
        uint64_t count = due < BATCH ? (uint64_t)due : BATCH;
        count = count < wanted - sent ? count : wanted - sent;
        int done = sendmmsg(fd, messages, (unsigned)count, 0);
        if (done < 0 && errno != ENOBUFS && errno != EAGAIN) {
            fail("sendmmsg");
        }
        sent += done > 0 ? (uint64_t)done : 0;
    }
    printf("%llu\n", (unsigned long long)sent * train);
}

static void take_arrivals(int fd) {
    uint8_t frame[HEADERS + 8], control[128];
    for (;;) {
        struct iovec vector = {frame, sizeof frame};
        struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(fd, &message, MSG_DONTWAIT) < (ssize_t)sizeof frame) {
            return;
        }
        struct timespec time;
        uint64_t left;
        memcpy(&time, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof time);
        memcpy(&left, frame + HEADERS, sizeof left);
        printf("%lld\n", (long long)time.tv_sec * 1000000000 + time.tv_nsec - (long long)left);
    }
}

static void probe(const char *from, const char *to, double rate, double seconds, const char *hex) {
    static load made;
    read_frame(&made, hex);
    int out = open_interface(from, 0, 0), in = open_interface(to, 1, 0);
    struct iovec vector = {made.frame, made.size};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    uint64_t start = now_ns(CLOCK_MONOTONIC), wanted = (uint64_t)(rate * seconds);
    for (uint64_t sent = 0; sent < wanted;) {
        if (now_ns(CLOCK_MONOTONIC) - start < (uint64_t)((double)sent / rate * 1e9)) {
            continue;
        }
        uint64_t left = now_ns(CLOCK_REALTIME);
        memcpy(made.frame + HEADERS, &left, sizeof left);
        if (sendmsg(out, &message, 0) < 0) {
            fail("sendmsg");
        }
        sent++;
    }
    nanosleep(&(struct timespec){0, 200000000}, NULL);
    take_arrivals(in);
}

/* Frames in turn, each at its time: what is late by more than a ms is left out, so that there are no bursts. Sleeps in
 * between, so it may have real-time priority. */
static void pace(const char *name, double rate, double seconds, int count, char **hex) {
    load *made = calloc((size_t)count, sizeof *made);
    for (int i = 0; made && i < count; i++) {
        read_frame(&made[i], hex[i]);
    }
    int fd = open_interface(name, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    uint64_t start = now_ns(CLOCK_MONOTONIC), sent = 0;
    for (uint64_t turn = 0, wanted = (uint64_t)(rate * seconds); made && turn < wanted; turn++) {
        uint64_t due = start + (uint64_t)((double)turn / rate * 1e9), now = now_ns(CLOCK_MONOTONIC);
        if (now > due + 1000000) {
            continue;
        }
        if (now < due) {
            struct timespec until = {(time_t)(due / 1000000000), (long)(due % 1000000000)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        }
        load *next = &made[turn % (uint64_t)count];
        struct iovec vector = {next->frame, next->size};
        struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
        sent += sendmsg(fd, &message, 0) > 0;
    }
    printf("%llu\n", (unsigned long long)sent);
}

/* The 16 bits at `offset` of each frame are another number; unless it is negative: then all are the same. */
static void flood(int offset, const char *hex, int count, char **names) {
    static load made[BATCH];
    static struct iovec vectors[BATCH];
    static struct mmsghdr messages[BATCH];
    int *fds = calloc((size_t)count, sizeof *fds);
    for (int i = 0; fds && i < count; i++) {
        fds[i] = open_interface(names[i], 0, 0);
    }
    for (int i = 0; i < BATCH; i++) {
        read_frame(&made[i], hex);
        vectors[i] = (struct iovec){made[i].frame, made[i].size};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &vectors[i], .msg_iovlen = 1};
    }
    for (uint32_t number = 0, port = 0; fds; port = (port + 1) % (uint32_t)count) {
        for (int i = 0; offset >= 0 && i < BATCH; i++) {
            put16(made[i].frame + offset, number++);
        }
        if (sendmmsg(fds[port], messages, BATCH, 0) < 0 && errno != ENOBUFS && errno != EAGAIN) {
            fail(names[port]);
        }
    }
}

int main(int count, char **words) {
    if (count == 7 && !strcmp(words[1], "send")) {
        send_frames(words[2], atof(words[3]), atof(words[4]), (uint32_t)atoi(words[5]), words[6]);
    } else if (count == 7 && !strcmp(words[1], "probe")) {
        probe(words[2], words[3], atof(words[4]), atof(words[5]), words[6]);
    } else if (count >= 6 && !strcmp(words[1], "pace")) {
        pace(words[2], atof(words[3]), atof(words[4]), count - 5, words + 5);
    } else if (count >= 5 && !strcmp(words[1], "flood")) {
        flood(atoi(words[2]), words[3], count - 4, words + 4);
    } else {
        fprintf(stderr, "usage: switch_load send INTERFACE RATE SECONDS TRAIN HEX | probe FROM TO RATE SECONDS HEX | "
                        "pace INTERFACE RATE SECONDS HEX... | flood OFFSET HEX INTERFACE...\n");
        return 2;
    }
    return 0;
}
