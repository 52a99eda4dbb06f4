/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch as messages for the kernel: a full one has room for a short datagram behind it, and for nothing longer. The linker puts
 * this sendmmsg in the place of the C library's (--wrap).
 */
#undef NDEBUG
#include <assert.h>
#include <netinet/in.h>
#include <string.h>

#include "io/datagrams.h"

enum { SEGMENT = 1472, FULL = GL_BATCH_BYTES / SEGMENT, LEFT = GL_BATCH_BYTES - FULL * SEGMENT };

static unsigned messages_seen, datagrams[GL_BATCH];

int __wrap_sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
    (void)fd, (void)flags;
    for (unsigned i = 0; i < count; i++) {
        const struct msghdr *m = &messages[i].msg_hdr;
        size_t bytes = 0;
        for (size_t k = 0; k < m->msg_iovlen; k++) bytes += m->msg_iov[k].iov_len;
        assert(bytes <= GL_BATCH_BYTES);
        uint16_t segment = 0;
        if (m->msg_controllen) memcpy(&segment, CMSG_DATA((struct cmsghdr *)m->msg_control), sizeof segment);
        assert(!segment || segment == SEGMENT);
        datagrams[messages_seen++] = segment ? (unsigned)((bytes + SEGMENT - 1) / SEGMENT) : 1;
    }
    return (int)count;
}

/* `count` whole datagrams of two pieces each, and one of `last` bytes. */
static void try_batch(unsigned count, size_t last, bool segmentation) {
    static uint8_t payload[SEGMENT];
    struct sockaddr_storage peer = {.ss_family = AF_INET};
    outlet out = {.peers = &peer, .segmentation = segmentation};
    gl_batch b = {.segment = SEGMENT, .datagrams = (uint16_t)(count + 1)};
    for (unsigned i = 0; i <= count; i++) {
        const size_t bytes = i < count ? SEGMENT : last;
        b.pieces[i] = 2;
        b.iov[b.iov_count++] = (struct iovec){b.headers[i], GL_HEADER};
        b.iov[b.iov_count++] = (struct iovec){payload, bytes - GL_HEADER};
    }
    messages_seen = 0;
    send_batch(&out, &b);
}

int main(void) {
    try_batch(FULL, 100, true);
    assert(messages_seen == 1 && datagrams[0] == FULL + 1);
    try_batch(FULL, LEFT, true);
    assert(messages_seen == 1 && datagrams[0] == FULL + 1);
    try_batch(FULL, LEFT + 1, true);
    assert(messages_seen == 2 && datagrams[0] == FULL && datagrams[1] == 1);
    try_batch(FULL - 1, SEGMENT, true);
    assert(messages_seen == 1 && datagrams[0] == FULL);
    try_batch(FULL + 1, 100, true); /* no more than the segments that fit, but for the last one */
    assert(messages_seen == 2 && datagrams[0] == FULL && datagrams[1] == 2);
    try_batch(3, 100, false);
    assert(messages_seen == 4);
    return 0;
}
