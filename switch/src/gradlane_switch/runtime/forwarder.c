/* SPDX-License-Identifier: Apache-2.0
 * The forwarding thread: packet sockets in, the program, the ports' queues and links out.
 *
 * Packets are processed in the order of the kernel's receive timestamps over all ports, and queues are drained up to a
 * packet's own time before it is queued. So a thread that was kept off the CPU decides as it would have decided in time;
 * only the delivery is late. */
#include <errno.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "port.h"

enum { VLAN_TAG = 4, SHORTEST_FRAME = 14, GATHER = 200000 /* ns */ };

/* What is added to the wake descriptor's counter. */
static const uint64_t STOP = 1, WAKE = UINT64_C(1) << 32;

static void wake(const gl_dataplane *dp, uint64_t reason) {
    /* This fails only when the counter is full, and then the thread wakes anyway. */
    (void)!write(dp->wake_fd, &reason, sizeof reason);
}

/* ---- What the program calls ---- */

static gl_packet *host_copy(gl_host *host, const gl_packet *packet, uint32_t offset) {
    gl_dataplane *dp = (gl_dataplane *)host;
    gl_packet *copy = gl_pool_get(&dp->pool);
    if (!copy) {
        dp->ports[packet->port]->stats.no_memory++;
        return NULL;
    }
    copy->port = packet->port;
    copy->length = packet->length - offset;
    memcpy(copy->data, packet->data + offset, copy->length);
    return copy;
}

static void host_discard(gl_host *host, gl_packet *packet, int by_program) {
    gl_dataplane *dp = (gl_dataplane *)host;
    dp->ports[packet->port]->stats.program_drops += by_program != 0;
    gl_pool_put(&dp->pool, packet);
}

static void host_emit(gl_host *host, gl_packet *packet, uint32_t number, uint32_t queue, uint64_t now) {
    gl_dataplane *dp = (gl_dataplane *)host;
    gl_port *port = number < GL_PORTS ? dp->ports[number] : NULL;
    if (!port || packet->length < SHORTEST_FRAME) {
        dp->ports[packet->port]->stats.no_port += !port;
        host_discard(host, packet, port != NULL);
        return;
    }
    gl_port_enqueue(dp, port, packet, queue < GL_QUEUES ? queue : GL_QUEUES - 1, now);
}

/* ---- Set-up ---- */

gl_dataplane *gl_dataplane_new(gl_lock *lock, uint32_t frame_size, uint64_t memory, uint64_t seed, int event_fd) {
    gl_dataplane *dp = calloc(1, sizeof *dp);
    if (!dp) {
        return NULL;
    }
    dp->host = (gl_host){host_copy, host_emit, host_discard};
    dp->lock = lock;
    dp->frame_size = frame_size + VLAN_TAG;
    dp->pool.packet_size = (sizeof(gl_packet) + GL_HEADROOM + dp->frame_size + 63) & ~(size_t)63;
    dp->pool.limit = memory;
    dp->seed = seed;
    dp->event_fd = event_fd;
    dp->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (dp->wake_fd < 0) {
        free(dp);
        return NULL;
    }
    return dp;
}

static void free_port(gl_port *port) {
    free(port->tx_link.heap);
    free(port->rx_link.heap);
    free(port->control);
    free(port);
}

void gl_dataplane_free(gl_dataplane *dp) {
    for (uint32_t i = 0; i < dp->count; i++) {
        free_port(dp->list[i]);
    }
    gl_pool_clear(&dp->pool);
    close(dp->wake_fd);
    free(dp);
}

static void apply(gl_port *port, gl_port_config config) {
    port->config = config;
    port->tx_link.config = config.tx;
    port->rx_link.config = config.rx;
}

int gl_port_add(gl_dataplane *dp, uint32_t number, int fd, uint32_t mtu, gl_port_config config) {
    gl_port *port = number < GL_DROP_PORT && !dp->ports[number] ? calloc(1, sizeof *port) : NULL;
    if (!port) {
        return -1;
    }
    port->control = calloc(GL_BATCH, sizeof *port->control);
    if (!port->control) {
        free(port);
        return -1;
    }
    port->number = number;
    port->fd = fd;
    port->frame_limit = mtu + SHORTEST_FRAME;
    port->stats.up = 1;
    apply(port, config);
    gl_link_seed(&port->tx_link, dp->seed * 2 * GL_PORTS + 2 * number);
    gl_link_seed(&port->rx_link, dp->seed * 2 * GL_PORTS + 2 * number + 1);
    for (int i = 0; i < GL_BATCH; i++) {
        port->rx.messages[i].msg_hdr = (struct msghdr){
            .msg_iov = &port->rx.vectors[i], .msg_iovlen = 1, .msg_control = port->control[i],
        };
        port->tx.messages[i].msg_hdr = (struct msghdr){.msg_iov = &port->tx.vectors[i], .msg_iovlen = 1};
    }
    dp->ports[number] = port;
    dp->list[dp->count++] = port;
    return 0;
}

void gl_port_configure(gl_dataplane *dp, uint32_t number, gl_port_config config) {
    gl_acquire(dp->lock);
    apply(dp->ports[number], config);
    gl_release(dp->lock);
    /* The thread may sleep towards a departure that the new rate brings forward. */
    wake(dp, WAKE);
}

void gl_port_statistics(gl_dataplane *dp, uint32_t number, gl_port_stats *out) {
    gl_acquire(dp->lock);
    const gl_port *port = dp->ports[number];
    *out = port->stats;
    out->depth_total = port->depth;
    out->tx_impaired = port->tx_link.statistics;
    out->rx_impaired = port->rx_link.statistics;
    for (int i = 0; i < GL_QUEUES; i++) {
        out->depth[i] = port->queues[i].bytes;
    }
    gl_release(dp->lock);
}

void gl_port_clear(gl_dataplane *dp, uint32_t number) {
    gl_acquire(dp->lock);
    gl_port *port = dp->ports[number];
    port->stats = (gl_port_stats){.up = port->stats.up, .depth_max = port->depth};
    port->tx_link.statistics = port->rx_link.statistics = (gl_impaired){0};
    port->told = 0;
    gl_release(dp->lock);
}

void gl_dataplane_program(gl_dataplane *dp, gl_process *process, gl_state *state) {
    gl_acquire(dp->lock);
    dp->process = process;
    dp->state = state;
    gl_release(dp->lock);
}

/* ---- Receiving ---- */

static uint64_t clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Posts buffers for a batch; how many there are. */
static uint32_t post(gl_dataplane *dp, gl_batch *batch) {
    uint32_t ready = 0;
    while (ready < GL_BATCH) {
        if (!batch->packets[ready]) {
            batch->packets[ready] = gl_pool_get(&dp->pool);
        }
        gl_packet *packet = batch->packets[ready];
        if (!packet) {
            break;
        }
        batch->vectors[ready] = (struct iovec){packet->data, dp->frame_size};
        batch->messages[ready].msg_hdr.msg_controllen = GL_CONTROL;
        ready++;
    }
    return ready;
}

/* Puts back the VLAN tag that the kernel took out of the frame. */
static void restore_tag(gl_packet *packet, const struct tpacket_auxdata *aux) {
    uint16_t type = aux->tp_status & TP_STATUS_VLAN_TPID_VALID ? aux->tp_vlan_tpid : 0x8100;
    const uint8_t tag[VLAN_TAG] = {(uint8_t)(type >> 8), (uint8_t)type, (uint8_t)(aux->tp_vlan_tci >> 8),
                                   (uint8_t)aux->tp_vlan_tci};
    memmove(packet->data - VLAN_TAG, packet->data, 12);
    packet->data -= VLAN_TAG;
    packet->length += VLAN_TAG;
    memcpy(packet->data + 12, tag, sizeof tag);
}

/* Completes a received packet from its control messages. 0 if it can't be forwarded. */
static int complete(gl_dataplane *dp, gl_port *port, gl_packet *packet, struct mmsghdr *message, uint64_t offset,
                    uint64_t now) {
    packet->length = message->msg_len;
    packet->port = (uint16_t)port->number;
    packet->due = now;
    if (packet->length > port->frame_limit || message->msg_hdr.msg_flags & MSG_TRUNC) {
        port->stats.oversize++;
        gl_tell(dp, port, GL_EVENT_OVERSIZE, 0, packet->length);
        return 0;
    }
    port->stats.rx.packets++;
    port->stats.rx.bytes += packet->length;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message->msg_hdr); c; c = CMSG_NXTHDR(&message->msg_hdr, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec time;
            memcpy(&time, CMSG_DATA(c), sizeof time);
            uint64_t arrived = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec - offset;
            packet->due = arrived < now ? arrived : now;
        } else if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA) {
            struct tpacket_auxdata aux;
            memcpy(&aux, CMSG_DATA(c), sizeof aux);
            if (aux.tp_status & TP_STATUS_VLAN_VALID) {
                restore_tag(packet, &aux);
            }
            if (aux.tp_status & TP_STATUS_CSUMNOTREADY) {
                port->stats.no_checksum++;
                gl_tell(dp, port, GL_EVENT_NO_CHECKSUM, 0, packet->length);
            }
        }
    }
    return 1;
}

static void note_error(gl_dataplane *dp, gl_port *port, int error) {
    if (error == EAGAIN || error == EINTR) {
        return;
    }
    port->stats.up = 0;
    port->told &= (uint8_t)~(1u << GL_EVENT_UP);
    gl_tell(dp, port, GL_EVENT_DOWN, error, 0);
}

/* Fills the port's batch if it is empty. */
static void receive(gl_dataplane *dp, gl_port *port, uint64_t offset, uint64_t now) {
    gl_batch *batch = &port->rx;
    if (batch->next < batch->count) {
        return;
    }
    batch->next = batch->count = 0;
    uint32_t ready = post(dp, batch);
    if (ready == 0) {
        port->stats.no_memory += recv(port->fd, NULL, 0, MSG_DONTWAIT | MSG_TRUNC) > 0;
        return;
    }
    int received = recvmmsg(port->fd, batch->messages, ready, MSG_DONTWAIT | MSG_TRUNC, NULL);
    if (received < 0) {
        note_error(dp, port, errno);
        return;
    }
    if (!port->stats.up) {
        port->stats.up = 1;
        port->told &= (uint8_t)~(1u << GL_EVENT_DOWN);
        gl_tell(dp, port, GL_EVENT_UP, 0, 0);
    }
    for (uint32_t i = 0; i < (uint32_t)received; i++) {
        gl_packet *packet = batch->packets[i];
        batch->packets[i] = NULL;
        if (complete(dp, port, packet, &batch->messages[i], offset, now)) {
            /* Slots before i are free: their packets have moved to the front of the batch. */
            batch->packets[batch->count++] = packet;
        } else {
            gl_pool_put(&dp->pool, packet);
        }
    }
}

/* ---- Processing ---- */

static void process(gl_dataplane *dp, gl_packet *packet, uint64_t at) {
    dp->clock = at > dp->clock ? at : dp->clock;
    if (dp->process) {
        dp->process(dp->state, packet, dp->clock, &dp->host);
    } else {
        host_discard(&dp->host, packet, 1);
    }
}

/* Processes what arrives by `now` from the hosts' links, in order of time. */
static void drain_rx_links(gl_dataplane *dp, uint64_t now) {
    for (;;) {
        gl_port *first = NULL;
        for (uint32_t i = 0; i < dp->count; i++) {
            gl_port *port = dp->list[i];
            if (port->rx_link.count && (!first || port->rx_link.heap[0]->due < first->rx_link.heap[0]->due)) {
                first = port;
            }
        }
        gl_packet *packet = first ? gl_link_due(&first->rx_link, now) : NULL;
        if (!packet) {
            return;
        }
        process(dp, packet, packet->due);
    }
}

static void from_host(gl_dataplane *dp, gl_port *port, gl_packet *packet) {
    uint64_t arrived = packet->due;
    switch (gl_link_enter(&port->rx_link, packet, arrived)) {
    case GL_LINK_NOW:
        process(dp, packet, arrived);
        break;
    case GL_LINK_LATER:
        break;
    case GL_LINK_NO_MEMORY:
        port->stats.no_memory++;
        gl_pool_put(&dp->pool, packet);
        break;
    case GL_LINK_LOST:
        gl_pool_put(&dp->pool, packet);
        break;
    }
}

/* Processes received packets in order of arrival. A port whose batch was full may have more in its socket, so others'
 * packets that are later than its last wait for the next round. */
static void process_batches(gl_dataplane *dp) {
    gl_port *active[GL_PORTS];
    uint32_t count = 0;
    uint64_t horizon = UINT64_MAX;
    for (uint32_t i = 0; i < dp->count; i++) {
        gl_batch *batch = &dp->list[i]->rx;
        if (batch->next < batch->count) {
            active[count++] = dp->list[i];
            uint64_t last = batch->packets[batch->count - 1]->due;
            if (batch->count == GL_BATCH && last < horizon) {
                horizon = last;
            }
        }
    }
    while (count) {
        uint32_t first = 0;
        for (uint32_t i = 1; i < count; i++) {
            if (active[i]->rx.packets[active[i]->rx.next]->due < active[first]->rx.packets[active[first]->rx.next]->due) {
                first = i;
            }
        }
        gl_port *port = active[first];
        gl_packet *packet = port->rx.packets[port->rx.next];
        if (packet->due > horizon) {
            return;
        }
        port->rx.packets[port->rx.next++] = NULL;
        drain_rx_links(dp, packet->due);
        from_host(dp, port, packet);
        if (port->rx.next == port->rx.count) {
            active[first] = active[--count];
        }
    }
}

/* How long to sleep: until the next departure or delivery. */
static const struct timespec *sleep_time(const gl_dataplane *dp, struct timespec *time) {
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < dp->count; i++) {
        const gl_port *port = dp->list[i];
        uint64_t at = port->rx.next < port->rx.count ? 0 : gl_port_next(port);
        next = at < next ? at : next;
    }
    if (next == UINT64_MAX) {
        return NULL;
    }
    uint64_t now = clock_ns(CLOCK_MONOTONIC), wait = next > now ? next - now : 0;
    *time = (struct timespec){(time_t)(wait / 1000000000u), (long)(wait % 1000000000u)};
    return time;
}

/* Lets packets gather since the last round, unless that was long ago: a round per packet costs twice the CPU time. What
 * the switch decides does not depend on when it decides it. */
static void gather(uint64_t last) {
    uint64_t until = last + GATHER;
    if (clock_ns(CLOCK_MONOTONIC) < until) {
        struct timespec time = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
    }
}

int gl_run(gl_dataplane *dp) {
    struct pollfd fds[GL_PORTS + 1];
    for (uint32_t i = 0; i < dp->count; i++) {
        fds[i] = (struct pollfd){dp->list[i]->fd, POLLIN, 0};
    }
    fds[dp->count] = (struct pollfd){dp->wake_fd, POLLIN, 0};
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    for (uint64_t last = 0;;) {
        struct timespec time;
        if (ppoll(fds, dp->count + 1, sleep_time(dp, &time), NULL) < 0 && errno != EINTR) {
            return errno;
        }
        uint64_t reasons = 0;
        if (fds[dp->count].revents && read(dp->wake_fd, &reasons, sizeof reasons) > 0 && (uint32_t)reasons) {
            return 0;
        }
        gather(last);
        gl_acquire(dp->lock);
        uint64_t now = last = clock_ns(CLOCK_MONOTONIC), offset = clock_ns(CLOCK_REALTIME) - now;
        for (uint32_t i = 0; i < dp->count; i++) {
            if (fds[i].revents) {
                receive(dp, dp->list[i], offset, now);
            }
        }
        process_batches(dp);
        drain_rx_links(dp, now);
        for (uint32_t i = 0; i < dp->count; i++) {
            gl_port_advance(dp, dp->list[i], now);
            if (dp->list[i]->tx.count) {
                gl_port_flush(dp, dp->list[i]);
            }
        }
        gl_release(dp->lock);
    }
}

void gl_stop(gl_dataplane *dp) {
    wake(dp, STOP);
}
