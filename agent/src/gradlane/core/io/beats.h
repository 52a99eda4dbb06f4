/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Signs of life that the runner sends by itself: whatever else goes on in its process, other hosts hear that it lives.
 */
#ifndef GRADLANE_BEATS_H
#define GRADLANE_BEATS_H

#include <stdint.h>
#include <sys/socket.h>

enum { GL_BEAT_BYTES = 64, GL_BEAT_US = 500000 };

/* A datagram to `count` addresses, all of the socket's family. */
typedef struct {
    int fd, tos;
    uint8_t bytes[GL_BEAT_BYTES];
    uint32_t length, count;
    struct sockaddr_storage *to;
} gl_beats;

/* Sends it once to each. Never waits; what the kernel does not take is lost. */
void send_beats(const gl_beats *beats);

#endif
