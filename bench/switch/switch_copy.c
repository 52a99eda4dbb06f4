/* SPDX-License-Identifier: Apache-2.0
 * The limits that the switch is compared with: loops that do nothing but copy frames from one interface to another, over
 * the kinds of sockets that a switch could use.
 *
 *   switch_copy sockets|rings|xdp FROM TO    prints "ready", and copies until it is killed
 *
 * sockets: recvmmsg and sendmmsg, as gradlane-switch. rings: TPACKET_V3 in, a TPACKET_V2 ring out (V3's is not faster).
 * xdp: AF_XDP in copy mode, the only one that veth has, behind a native XDP program. */
#include <arpa/inet.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BATCH = 128, SLOT = 2048, MEMORY = 8 << 20, BLOCK = 1 << 16, RETIRE_MS = 1, FRAMES = 4096 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void check(int failed, const char *what) {
    if (failed) {
        fail(what);
    }
}

static void *map(int fd, size_t size, uint64_t offset) {
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, (off_t)offset);
    check(memory == MAP_FAILED, "mmap");
    return memory;
}

static void ready(void) {
    printf("ready\n");
    fflush(stdout);
}

static void wait_for(int fd) {
    struct pollfd in = {fd, POLLIN, 0};
    poll(&in, 1, -1);
}

/* ---- Packet sockets ---- */

static int open_packet(void) {
    int fd = socket(AF_PACKET, SOCK_RAW, 0), one = 1, buffer = MEMORY;
    check(fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one) ||
              setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) ||
              setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) ||
              setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer), "AF_PACKET");
    return fd;
}

static void bind_packet(int fd, const char *name, int receives) {
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(name)};
    address.sll_protocol = receives ? htons(ETH_P_ALL) : 0;
    struct packet_mreq promiscuous = {.mr_ifindex = address.sll_ifindex, .mr_type = PACKET_MR_PROMISC};
    check(setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) ||
              bind(fd, (struct sockaddr *)&address, sizeof address), name);
}

static void copy_by_sockets(const char *from, const char *to) {
    static uint8_t room[BATCH][SLOT];
    struct iovec vectors[BATCH];
    struct mmsghdr messages[BATCH];
    int in = open_packet(), out = open_packet();
    bind_packet(in, from, 1);
    bind_packet(out, to, 0);
    for (ready();; wait_for(in)) {
        for (int i = 0; i < BATCH; i++) {
            vectors[i] = (struct iovec){room[i], SLOT};
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
}

static void copy_by_rings(const char *from, const char *to) {
    int in = open_packet(), out = open_packet(), v3 = TPACKET_V3, v2 = TPACKET_V2;
    struct tpacket_req3 receive = {.tp_block_size = BLOCK, .tp_block_nr = MEMORY / BLOCK, .tp_frame_size = SLOT,
                                   .tp_frame_nr = MEMORY / SLOT, .tp_retire_blk_tov = RETIRE_MS};
    struct tpacket_req send_ring = {.tp_block_size = BLOCK, .tp_block_nr = MEMORY / BLOCK, .tp_frame_size = SLOT,
                                    .tp_frame_nr = MEMORY / SLOT};
    check(setsockopt(in, SOL_PACKET, PACKET_VERSION, &v3, sizeof v3) ||
              setsockopt(in, SOL_PACKET, PACKET_RX_RING, &receive, sizeof receive) ||
              setsockopt(out, SOL_PACKET, PACKET_VERSION, &v2, sizeof v2) ||
              setsockopt(out, SOL_PACKET, PACKET_TX_RING, &send_ring, sizeof send_ring), "ring");
    uint8_t *blocks = map(in, MEMORY, 0), *slots = map(out, MEMORY, 0);
    bind_packet(in, from, 1);
    bind_packet(out, to, 0);
    ready();
    for (size_t block = 0, slot = 0;; block = (block + 1) % (MEMORY / BLOCK)) {
        struct tpacket_block_desc *full = (void *)(blocks + block * BLOCK);
        while (!(__atomic_load_n(&full->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) {
            wait_for(in);
        }
        struct tpacket3_hdr *frame = (void *)((uint8_t *)full + full->hdr.bh1.offset_to_first_pkt);
        for (uint32_t i = 0; i < full->hdr.bh1.num_pkts; i++) {
            struct tpacket2_hdr *free = (void *)(slots + slot * SLOT);
            while (__atomic_load_n(&free->tp_status, __ATOMIC_ACQUIRE) != TP_STATUS_AVAILABLE) {
                send(out, NULL, 0, MSG_DONTWAIT);
            }
            memcpy((uint8_t *)free + TPACKET2_HDRLEN - sizeof(struct sockaddr_ll), (uint8_t *)frame + frame->tp_mac,
                   frame->tp_snaplen);
            free->tp_len = frame->tp_snaplen;
            __atomic_store_n(&free->tp_status, TP_STATUS_SEND_REQUEST, __ATOMIC_RELEASE);
            slot = (slot + 1) % (MEMORY / SLOT);
            frame = (void *)((uint8_t *)frame + frame->tp_next_offset);
        }
        send(out, NULL, 0, MSG_DONTWAIT);
        __atomic_store_n(&full->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    }
}

/* ---- AF_XDP ---- */

typedef struct {
    uint32_t *producer, *consumer;
    void *entries;
} ring;

typedef struct {
    int fd;
    ring receive, send, fill, done;
} xdp_socket;

static ring map_ring(int fd, const struct xdp_ring_offset *at, uint64_t page, size_t entry) {
    uint8_t *memory = map(fd, at->desc + FRAMES * entry, page);
    return (ring){(uint32_t *)(memory + at->producer), (uint32_t *)(memory + at->consumer), memory + at->desc};
}

/* A socket on queue 0 of an interface; `shared`: one that has registered the memory already, or -1. */
static xdp_socket open_xdp(const char *name, void *memory, int shared) {
    xdp_socket made = {.fd = socket(AF_XDP, SOCK_RAW, 0)};
    struct xdp_umem_reg region = {.addr = (uintptr_t)memory, .len = (uint64_t)FRAMES * SLOT, .chunk_size = SLOT};
    const int options[] = {XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING}, entries = FRAMES;
    check(made.fd < 0 || (shared < 0 && setsockopt(made.fd, SOL_XDP, XDP_UMEM_REG, &region, sizeof region)), "AF_XDP");
    for (int i = 0; i < 4; i++) {
        check(setsockopt(made.fd, SOL_XDP, options[i], &entries, sizeof entries), "AF_XDP ring");
    }
    struct xdp_mmap_offsets at;
    socklen_t size = sizeof at;
    check(getsockopt(made.fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &size), "AF_XDP offsets");
    made.receive = map_ring(made.fd, &at.rx, XDP_PGOFF_RX_RING, sizeof(struct xdp_desc));
    made.send = map_ring(made.fd, &at.tx, XDP_PGOFF_TX_RING, sizeof(struct xdp_desc));
    made.fill = map_ring(made.fd, &at.fr, XDP_UMEM_PGOFF_FILL_RING, sizeof(uint64_t));
    made.done = map_ring(made.fd, &at.cr, XDP_UMEM_PGOFF_COMPLETION_RING, sizeof(uint64_t));
    struct sockaddr_xdp address = {.sxdp_family = AF_XDP, .sxdp_ifindex = if_nametoindex(name)};
    address.sxdp_flags = shared < 0 ? XDP_COPY : XDP_SHARED_UMEM;
    address.sxdp_shared_umem_fd = shared < 0 ? 0 : (uint32_t)shared;
    check(bind(made.fd, (struct sockaddr *)&address, sizeof address), name);
    return made;
}

static int bpf(int command, union bpf_attr *attributes) {
    int result = (int)syscall(__NR_bpf, command, attributes, sizeof *attributes);
    check(result < 0, "bpf");
    return result;
}

/* Hands what the interface receives on queue 0 to a socket, until this process ends. */
static void redirect(const char *name, int fd) {
    union bpf_attr create = {.map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = 1};
    int sockets = bpf(BPF_MAP_CREATE, &create), key = 0;
    union bpf_attr update = {.map_fd = (uint32_t)sockets, .key = (uintptr_t)&key, .value = (uintptr_t)&fd};
    bpf(BPF_MAP_UPDATE_ELEM, &update);
    const struct bpf_insn program[] = {
        {.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = offsetof(struct xdp_md, rx_queue_index)},
        {.code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = sockets},
        {0},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map},
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr load = {.prog_type = BPF_PROG_TYPE_XDP, .insns = (uintptr_t)program, .license = (uintptr_t)"GPL",
                           .insn_cnt = sizeof program / sizeof *program};
    union bpf_attr link = {.link_create = {.prog_fd = (uint32_t)bpf(BPF_PROG_LOAD, &load), .attach_type = BPF_XDP,
                                           .target_ifindex = if_nametoindex(name), .flags = XDP_FLAGS_DRV_MODE}};
    bpf(BPF_LINK_CREATE, &link);
}

static void copy_by_xdp(const char *from, const char *to) {
    void *memory = map(-1, (size_t)FRAMES * SLOT, 0);
    xdp_socket in = open_xdp(from, memory, -1), out = open_xdp(to, memory, in.fd);
    redirect(from, in.fd);
    uint64_t *fill = in.fill.entries;
    const uint64_t *done = out.done.entries;
    const struct xdp_desc *received = in.receive.entries;
    struct xdp_desc *sending = out.send.entries;
    for (uint32_t i = 0; i < FRAMES; i++) {
        fill[i] = (uint64_t)i * SLOT;
    }
    __atomic_store_n(in.fill.producer, FRAMES, __ATOMIC_RELEASE);
    ready();
    uint32_t copied = 0, finished = 0;
    for (;;) {
        uint32_t count = __atomic_load_n(in.receive.producer, __ATOMIC_ACQUIRE) - copied;
        if (count == 0 && copied == finished) {
            wait_for(in.fd);
            continue;
        }
        count = count < BATCH ? count : BATCH;
        for (uint32_t i = copied; i != copied + count; i++) {
            sending[i % FRAMES] = (struct xdp_desc){received[i % FRAMES].addr, received[i % FRAMES].len, 0};
        }
        copied += count;
        __atomic_store_n(in.receive.consumer, copied, __ATOMIC_RELEASE);
        __atomic_store_n(out.send.producer, copied, __ATOMIC_RELEASE);
        sendto(out.fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
        uint32_t end = __atomic_load_n(out.done.producer, __ATOMIC_ACQUIRE);
        for (; finished != end; finished++) {
            fill[finished % FRAMES] = done[finished % FRAMES] / SLOT * SLOT;
        }
        __atomic_store_n(out.done.consumer, finished, __ATOMIC_RELEASE);
        __atomic_store_n(in.fill.producer, FRAMES + finished, __ATOMIC_RELEASE);
    }
}

int main(int count, char **words) {
    const char *names[] = {"sockets", "rings", "xdp"};
    void (*const loops[])(const char *, const char *) = {copy_by_sockets, copy_by_rings, copy_by_xdp};
    for (int i = 0; count == 4 && i < 3; i++) {
        if (!strcmp(words[1], names[i])) {
            loops[i](words[2], words[3]);
        }
    }
    fprintf(stderr, "usage: switch_copy sockets|rings|xdp FROM TO\n");
    return 2;
}
