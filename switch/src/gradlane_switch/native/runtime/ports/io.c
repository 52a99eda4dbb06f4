/* SPDX-License-Identifier: Apache-2.0 */
#include "ports/io.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sock_diag.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/time.h"

/* ---- AF_PACKET and UDP sockets ---- */

static int socket_receive(gl_port *port, gl_inbox *inbox, uint32_t room) {
    return recvmmsg(port->fd, inbox->messages, room, MSG_DONTWAIT | MSG_TRUNC, NULL);
}

static int socket_send(gl_port *port, gl_outbox *outbox, uint32_t first, uint32_t end) {
    return sendmmsg(port->fd, outbox->messages + first, end - first, MSG_DONTWAIT);
}

static uint64_t packet_drops(gl_port *port) {
    struct tpacket_stats counted;
    socklen_t size = sizeof counted;
    /* Reading zeroes it. */
    return getsockopt(port->fd, SOL_PACKET, PACKET_STATISTICS, &counted, &size) ? 0 : counted.tp_drops;
}

static uint64_t udp_drops(gl_port *port) {
    uint32_t memory[SK_MEMINFO_VARS];
    socklen_t size = sizeof memory;
    if (getsockopt(port->fd, SOL_SOCKET, SO_MEMINFO, memory, &size)) {
        return 0;
    }
    uint32_t more = memory[SK_MEMINFO_DROPS] - port->udp_drops;
    port->udp_drops = memory[SK_MEMINFO_DROPS];
    return more;
}

static uint64_t no_drops(gl_port *port) {
    (void)port;
    return 0;
}

/* ---- TAP interfaces: a frame per call ---- */

static int tap_receive(gl_port *port, gl_inbox *inbox, uint32_t room) {
    for (uint32_t i = 0; i < room; i++) {
        struct mmsghdr *message = &inbox->messages[i];
        ssize_t size = readv(port->fd, message->msg_hdr.msg_iov, 1);
        if (size < 0) {
            return i ? (int)i : -1;
        }
        message->msg_len = (unsigned)size;
        message->msg_hdr.msg_flags = 0;
        message->msg_hdr.msg_controllen = 0;
    }
    return (int)room;
}

static int tap_send(gl_port *port, gl_outbox *outbox, uint32_t first, uint32_t end) {
    (void)end;
    return writev(port->fd, outbox->messages[first].msg_hdr.msg_iov, 1) < 0 ? -1 : 1;
}

/* ---- pcap files: frames are fed in, and written with the time of their departure ---- */

typedef struct {
    uint32_t seconds, nanoseconds, kept, length;
} record;

static int file_receive(gl_port *port, gl_inbox *inbox, uint32_t room) {
    (void)port;
    (void)inbox;
    (void)room;
    errno = EAGAIN;
    return -1;
}

static int file_send(gl_port *port, gl_outbox *outbox, uint32_t first, uint32_t end) {
    (void)end;
    const gl_packet *packet = *outbox->packets[first];
    if (!port->file) {
        return 1;
    }
    uint64_t at = port->epoch + packet->due;
    record header = {(uint32_t)(at / GL_SECOND), (uint32_t)(at % GL_SECOND), packet->length, packet->length};
    int whole = fwrite(&header, sizeof header, 1, port->file) == 1 &&
                fwrite(packet->data, 1, packet->length, port->file) == packet->length;
    return whole ? 1 : -1;
}

const gl_io gl_kinds[] = {
    [GL_PORT_PACKET] = {1, ETH_HLEN, socket_receive, socket_send, packet_drops},
    [GL_PORT_UDP] = {0, 0, socket_receive, socket_send, udp_drops},
    [GL_PORT_TAP] = {0, ETH_HLEN, tap_receive, tap_send, no_drops},
    [GL_PORT_FILE] = {0, 0, file_receive, file_send, no_drops},
};
