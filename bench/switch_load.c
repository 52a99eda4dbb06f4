/* SPDX-License-Identifier: Apache-2.0
 * The benchmark's load, and the limit that it compares with: frames onto an interface at a rate, and a loop that does
 * nothing but copy frames from one interface to another, on the sockets that the switch uses.
 *
 *   switch_load send INTERFACE PACKETS-PER-SECOND SECONDS HEX    prints how many frames it sent
 *   switch_load copy FROM TO                                     prints "ready", and copies until it is killed */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { BATCH = 32, LONGEST = 2048, BUFFER = 8 << 20 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int open_interface(const char *name, int receives) {
    int fd = socket(AF_PACKET, SOCK_RAW, 0), one = 1, buffer = BUFFER;
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(name)};
    address.sll_protocol = receives ? htons(ETH_P_ALL) : 0;
    struct packet_mreq promiscuous = {.mr_ifindex = address.sll_ifindex, .mr_type = PACKET_MR_PROMISC};
    if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one) ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) ||
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) ||
        setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer) ||
        bind(fd, (struct sockaddr *)&address, sizeof address)) {
        fail(name);
    }
    return fd;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void send_frames(const char *name, double rate, double seconds, const char *hex) {
    static uint8_t frame[LONGEST];
    size_t size = strlen(hex) / 2;
    for (size_t i = 0; i < size && i < LONGEST; i++) {
        unsigned octet;
        if (sscanf(hex + 2 * i, "%2x", &octet) != 1) {
            exit(2);
        }
        frame[i] = (uint8_t)octet;
    }
    int fd = open_interface(name, 0);
    struct iovec vector = {frame, size};
    struct mmsghdr messages[BATCH];
    for (int i = 0; i < BATCH; i++) {
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &vector, .msg_iovlen = 1}};
    }
    uint64_t sent = 0, wanted = (uint64_t)(rate * seconds);
    for (double start = now(); sent < wanted;) {
        double due = (now() - start) * rate - (double)sent;
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
    printf("%llu\n", (unsigned long long)sent);
}

static void copy_frames(const char *from, const char *to) {
    static uint8_t room[BATCH][LONGEST];
    struct iovec vectors[BATCH];
    struct mmsghdr messages[BATCH];
    int in = open_interface(from, 1), out = open_interface(to, 0);
    printf("ready\n");
    fflush(stdout);
    for (struct pollfd poll_in = {in, POLLIN, 0}; poll(&poll_in, 1, -1) > 0;) {
        for (int i = 0; i < BATCH; i++) {
            vectors[i] = (struct iovec){room[i], LONGEST};
            messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &vectors[i], .msg_iovlen = 1}};
        }
        int count = recvmmsg(in, messages, BATCH, MSG_DONTWAIT, NULL);
        for (int i = 0; i < count; i++) {
            vectors[i].iov_len = messages[i].msg_len;
        }
        for (int done = 0; done < count;) {
            int sent = sendmmsg(out, messages + done, (unsigned)(count - done), MSG_DONTWAIT);
            done += sent > 0 ? sent : 1;
        }
    }
    fail("poll");
}

int main(int count, char **words) {
    if (count == 6 && !strcmp(words[1], "send")) {
        send_frames(words[2], atof(words[3]), atof(words[4]), words[5]);
        return 0;
    }
    if (count == 4 && !strcmp(words[1], "copy")) {
        copy_frames(words[2], words[3]);
    }
    fprintf(stderr, "usage: switch_load send INTERFACE RATE SECONDS HEX | copy FROM TO\n");
    return 2;
}
