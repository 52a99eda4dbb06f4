/* SPDX-License-Identifier: Apache-2.0
 *
 * A socket whose buffer is full: what is sent counts as lost, and nobody waits. The linker puts this sendmmsg in the place of the
 * C library's (--wrap).
 */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "io/clock.h"
#include "io/datagrams.h"

static int calls, room;

int __wrap_sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
    (void)fd, (void)messages;
    assert(flags & MSG_DONTWAIT);
    calls++;
    if (!room) return errno = EAGAIN, -1;
    const int sent = (int)count < room ? (int)count : room;
    room -= sent;
    return sent;
}

int main(void) {
    struct sockaddr_storage peer = {.ss_family = 2};
    outlet out = {.peers = &peer, .segmentation = false};
    gl_batch b = {.segment = 10, .datagrams = 5, .pieces = {1, 1, 1, 1, 1}, .iov_count = 5};
    for (int i = 0; i < 5; i++) b.iov[i] = (struct iovec){b.headers[i], 10};
    room = 2;
    const uint64_t before = gl_now();
    send_batch(&out, &b);
    assert(calls == 2 && out.errors == 3 && out.last_error == EAGAIN && out.full_until > before);
    room = 5;
    send_batch(&out, &b);
    assert(calls == 3 && out.errors == 3);
    return 0;
}
