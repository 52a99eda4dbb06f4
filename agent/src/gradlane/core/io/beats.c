/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Signs of life on a UDP socket.
 */
#include "io/beats.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/uio.h>

void send_beats(const gl_beats *b) {
    for (uint32_t i = 0; i < b->count; i++) {
        const bool six = b->to[i].ss_family == AF_INET6;
        struct iovec bytes = {.iov_base = (void *)b->bytes, .iov_len = b->length};
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
        struct msghdr message = {
            .msg_name = &b->to[i], .msg_namelen = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
            .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct cmsghdr *tos = CMSG_FIRSTHDR(&message);
        tos->cmsg_level = six ? IPPROTO_IPV6 : IPPROTO_IP, tos->cmsg_type = six ? IPV6_TCLASS : IP_TOS;
        tos->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(tos), &b->tos, sizeof(int));
        if (sendmsg(b->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) continue;
    }
}
