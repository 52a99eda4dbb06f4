/* SPDX-License-Identifier: Apache-2.0
 * The benchmark's load of workers whose gradients a switch sums: as fast as results come.
 *
 *   sum_load SECONDS WINDOW NUMBER-AT SLOT-AT CHECKSUM-AT HEX...
 *
 * HEX is the frame of each worker; worker i sends it at interface host-i, with the number of the slice in the 32 bits at
 * NUMBER-AT and its slot in the 16 at SLOT-AT, and a UDP checksum to match. Every worker has WINDOW slices on the way at
 * most: more follow when as many frames have come to host-1. Prints the slices of which all have come, those of which some
 * have not, for want of a frame for a second, and the ns that it took. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 32, LONGEST = 2048, MOST = 32, SEND_BUFFER = 8 << 20 };

typedef struct {
    int fd;
    size_t size;
    uint8_t frames[BATCH][LONGEST];
} worker;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int open_interface(int number) {
    char name[IFNAMSIZ];
    snprintf(name, sizeof name, "host-%d", number);
    int fd = socket(AF_PACKET, SOCK_RAW, 0), one = 1, room = SEND_BUFFER;
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(name)};
    if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one) ||
        setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) ||
        bind(fd, (struct sockaddr *)&address, sizeof address)) {
        fail(name);
    }
    return fd;
}

static uint32_t get16(const uint8_t *at) {
    return (uint32_t)at[0] << 8 | at[1];
}

/* Another value of 16 bits at an even place, and the checksum that goes with it (RFC 1624). */
static void change(uint8_t *frame, size_t at, uint32_t value, size_t checksum) {
    uint32_t sum = (~get16(frame + checksum) & 0xffff) + (~get16(frame + at) & 0xffff) + value;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
    sum = sum ? sum : 0xffff;
    frame[at] = (uint8_t)(value >> 8);
    frame[at + 1] = (uint8_t)value;
    frame[checksum] = (uint8_t)(sum >> 8);
    frame[checksum + 1] = (uint8_t)sum;
}

static void read_frames(worker *it, const char *hex) {
    it->size = strlen(hex) / 2;
    for (size_t i = 0; i < it->size && i < LONGEST; i++) {
        unsigned octet;
        if (sscanf(hex + 2 * i, "%2x", &octet) != 1) {
            exit(2);
        }
        for (int k = 0; k < BATCH; k++) {
            it->frames[k][i] = (uint8_t)octet;
        }
    }
}

static void send_batch(worker *it) {
    struct iovec vectors[BATCH];
    struct mmsghdr messages[BATCH] = {0};
    for (int k = 0; k < BATCH; k++) {
        vectors[k] = (struct iovec){it->frames[k], it->size};
        messages[k].msg_hdr = (struct msghdr){.msg_iov = &vectors[k], .msg_iovlen = 1};
    }
    for (int sent = 0; sent < BATCH;) {
        int done = sendmmsg(it->fd, messages + sent, (unsigned)(BATCH - sent), 0);
        if (done < 0 && errno != ENOBUFS && errno != EAGAIN) {
            fail("sendmmsg");
        }
        sent += done > 0 ? done : 0;
    }
}

static uint64_t arrived(int fd) {
    char text[32] = {0};
    if (pread(fd, text, sizeof text - 1, 0) <= 0) {
        fail("rx_packets");
    }
    return strtoull(text, NULL, 10);
}

int main(int count, char **words) {
    static worker workers[MOST];
    int used = count - 6;
    if (used < 1 || used > MOST) {
        fprintf(stderr, "usage: sum_load SECONDS WINDOW NUMBER-AT SLOT-AT CHECKSUM-AT HEX... (at most %d)\n", MOST);
        return 2;
    }
    double seconds = atof(words[1]);
    uint64_t window = (uint64_t)atoi(words[2]), done = 0, lost = 0, sent = 0;
    size_t number_at = (size_t)atoi(words[3]), slot_at = (size_t)atoi(words[4]), checksum_at = (size_t)atoi(words[5]);
    for (int i = 0; i < used; i++) {
        read_frames(&workers[i], words[6 + i]);
        workers[i].fd = open_interface(i + 1);
    }
    int statistics = open("/sys/class/net/host-1/statistics/rx_packets", O_RDONLY);
    uint64_t before = statistics < 0 ? 0 : arrived(statistics), start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
    uint64_t heard = start;
    if (statistics < 0) {
        fail("rx_packets");
    }
    for (uint64_t now = start; now < end || sent > done + lost; now = now_ns()) {
        uint64_t found = arrived(statistics) - before;
        if (found > done) {
            done = found;
            heard = now;
        } else if (now - heard > 1000000000u) {
            lost = sent - done;
            heard = now;
        }
        if (now >= end || sent + BATCH > done + lost + window) {
            continue;
        }
        for (int i = 0; i < used; i++) {
            for (uint32_t k = 0; k < BATCH; k++) {
                uint32_t number = (uint32_t)sent + k;
                change(workers[i].frames[k], number_at, number >> 16, checksum_at);
                change(workers[i].frames[k], number_at + 2, number & 0xffff, checksum_at);
                change(workers[i].frames[k], slot_at, number & 0xffff, checksum_at);
            }
            send_batch(&workers[i]);
        }
        sent += BATCH;
    }
    printf("%llu %llu %llu\n", (unsigned long long)done, (unsigned long long)lost, (unsigned long long)(heard - start));
    return 0;
}
