/* SPDX-License-Identifier: Apache-2.0 */
#include "ports/receive.h"

#include <errno.h>
#include <linux/if_packet.h>
#include <string.h>
#include <time.h>

#include "base/counter.h"
#include "base/time.h"
#include "ports/events.h"
#include "wire/ethernet.h"
#include "wire/offload.h"

/* Posts buffers; how many there are. */
static uint32_t post(gl_shared *shared, const gl_port *port) {
    uint32_t ready = 0, skipped = port->io->offload ? 0 : 1;
    while (ready < GL_BATCH) {
        gl_slot *slot = &shared->inbox.slots[ready];
        if (!slot->packet) {
            slot->packet = gl_pool_get(&shared->pool);
        }
        if (!slot->packet) {
            break;
        }
        slot->rest = shared->rests + (size_t)ready * GL_LONGEST;
        slot->vectors[0] = (struct iovec){&slot->offload, sizeof slot->offload};
        slot->vectors[1] = (struct iovec){slot->packet->data, shared->frame_size};
        slot->vectors[2] = (struct iovec){slot->rest, GL_LONGEST};
        shared->inbox.messages[ready++].msg_hdr = (struct msghdr){
            .msg_iov = slot->vectors + skipped, .msg_iovlen = 3 - 2 * skipped,
            .msg_control = slot->control, .msg_controllen = GL_CONTROL,
        };
    }
    return ready;
}

/* Puts back the VLAN tag that the kernel took out of the frame. */
static void restore_tag(gl_packet *packet, const struct tpacket_auxdata *aux) {
    uint16_t type = aux->tp_status & TP_STATUS_VLAN_TPID_VALID ? aux->tp_vlan_tpid : 0x8100;
    const uint8_t tag[GL_VLAN_TAG] = {(uint8_t)(type >> 8), (uint8_t)type, (uint8_t)(aux->tp_vlan_tci >> 8),
                                      (uint8_t)aux->tp_vlan_tci};
    memmove(packet->data - GL_VLAN_TAG, packet->data, 12);
    packet->data -= GL_VLAN_TAG;
    packet->length += GL_VLAN_TAG;
    memcpy(packet->data + 12, tag, sizeof tag);
}

/* What the kernel says of a frame beside its bytes. */
typedef struct {
    uint64_t arrived;        /* ns */
    struct tpacket_auxdata aux;
} gl_notice;

static gl_notice read_notice(struct msghdr *message, uint64_t offset, uint64_t now) {
    gl_notice notice = {.arrived = now};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec time;
            memcpy(&time, CMSG_DATA(c), sizeof time);
            uint64_t arrived = (uint64_t)time.tv_sec * GL_SECOND + (uint64_t)time.tv_nsec - offset;
            notice.arrived = arrived < now ? arrived : now;
        } else if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA) {
            memcpy(&notice.aux, CMSG_DATA(c), sizeof notice.aux);
        }
    }
    return notice;
}

static void refuse(gl_shared *shared, gl_port *port, uint32_t length) {
    gl_tally(&port->stats.oversize, length);
    gl_report(shared, port, GL_EVENT_OVERSIZE, 0, length);
}

/* Takes the packets out of a message. NULL: there is none that can be forwarded, and that is counted. */
static gl_packet *unpack(gl_shared *shared, gl_port *port, gl_slot *slot, const struct mmsghdr *message) {
    gl_packet *packet = slot->packet;
    const struct virtio_net_hdr *offload = &slot->offload;
    packet->length = message->msg_len - (port->io->offload ? (uint32_t)sizeof *offload : 0);
    packet->next = NULL;
    if (message->msg_hdr.msg_flags & MSG_TRUNC) {
        refuse(shared, port, packet->length);
        return NULL;
    }
    if (port->io->offload) {
        if (offload->gso_type != VIRTIO_NET_HDR_GSO_NONE || offload->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
            uint32_t length = packet->length;
            gl_counter missing = {0};
            shared->origins += shared->origins == UINT32_MAX ? 2 : 1;
            packet = gl_offload_cut(&shared->pool, slot, length, shared->frame_size, shared->origins, &missing);
            if (!packet) {
                refuse(shared, port, length);
                return NULL;
            }
            gl_counter *counts[] = {&port->stats.rx, &port->stats.rx_no_memory};
            for (int i = 0; i < 2; i++) {
                counts[i]->packets += missing.packets;
                counts[i]->bytes += missing.bytes;
            }
        }
    }
    slot->packet = NULL;
    return packet;
}

static void arrive(gl_shared *shared, gl_port *port, gl_packet *packet, const gl_notice *notice) {
    if (packet->length > port->frame_limit) {
        refuse(shared, port, packet->length);
        gl_pool_put(&shared->pool, packet);
        return;
    }
    if (notice->aux.tp_status & TP_STATUS_VLAN_VALID) {
        restore_tag(packet, &notice->aux);
    }
    packet->port = (uint16_t)port->number;
    packet->due = notice->arrived;
    gl_tally(&port->stats.rx, packet->length);
    if (!port->config.up) {
        gl_tally(&port->stats.rx_down, packet->length);
        gl_pool_put(&shared->pool, packet);
        return;
    }
    packet->next = NULL;
    if (port->arrived) {
        /* In order although the clock may have been set: a port's last packet is what others wait for. */
        packet->due = packet->due > port->last_arrived->due ? packet->due : port->last_arrived->due;
        port->last_arrived->next = packet;
    } else {
        port->arrived = packet;
    }
    port->last_arrived = packet;
    port->arrived_count++;
}

static void note_error(gl_shared *shared, gl_port *port, int error) {
    if (error == EAGAIN || error == EINTR || error == ECONNREFUSED) {
        return;  /* Refused: nobody is at the other end of a tunnel yet. */
    }
    if (error == EINVAL && port->io->offload) {
        /* The kernel has dropped a frame whose offload virtio_net_hdr can't tell, such as one inside a tunnel. */
        gl_tally(&port->stats.oversize, 0);
        gl_report(shared, port, GL_EVENT_OVERSIZE, error, 0);
        return;
    }
    port->stats.up = 0;
    port->reported &= (uint8_t)~(1u << GL_EVENT_UP);
    gl_report(shared, port, GL_EVENT_DOWN, error, 0);
}

void gl_port_receive(gl_shared *shared, gl_port *port, uint64_t offset, uint64_t now) {
    if (port->arrived) {
        return;
    }
    port->more = 0;
    uint32_t ready = post(shared, port);
    if (ready == 0) {
        return;  /* What waits in the socket waits on, until a packet has left. */
    }
    int received = port->io->receive(port, &shared->inbox, ready);
    if (received < 0) {
        note_error(shared, port, errno);
        return;
    }
    if (!port->stats.up) {
        port->stats.up = 1;
        port->reported &= (uint8_t)~(1u << GL_EVENT_DOWN);
        gl_report(shared, port, GL_EVENT_UP, 0, 0);
        }
    port->more = (uint32_t)received == ready;
    for (uint32_t i = 0; i < (uint32_t)received; i++) {
        struct mmsghdr *message = &shared->inbox.messages[i];
        gl_notice notice = read_notice(&message->msg_hdr, offset, now);
        gl_packet *packet = unpack(shared, port, &shared->inbox.slots[i], message);
        while (packet) {
            gl_packet *next = packet->next;
            arrive(shared, port, packet, &notice);
            packet = next;
        }
    }
}
