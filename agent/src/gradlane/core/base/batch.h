/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What an engine sends at a time.
 */
#ifndef GRADLANE_BATCH_H
#define GRADLANE_BATCH_H

#include <stdint.h>
#include <sys/uio.h>

#include "wire.h"

enum {
    GL_BATCH = 64,          /* datagrams: UDP_MAX_SEGMENTS of every kernel that has UDP_SEGMENT */
    GL_BATCH_BYTES = 65507, /* of a batch of several: an IPv4 packet, less its headers */
};

/* One or more datagrams to one receiver: equal sizes but for the last, so one UDP_SEGMENT send carries them, or one for
 * each run of equal tags. */
typedef struct {
    uint16_t to;      /* a rank; the number of ranks stands for the multicast group of this
                       * aggregator, one more for the switch that sums */
    uint16_t segment;
    uint16_t datagrams;
    uint8_t tos[GL_BATCH]; /* of each datagram; 0: whatever the socket has */
    uint8_t pieces[GL_BATCH]; /* of `iov` that make up a datagram, which they do in turn */
    int iov_count;
    struct iovec iov[2 * GL_BATCH];
    uint8_t headers[GL_BATCH][GL_HEADER];
    uint8_t control[GL_HEADER + GL_MAX_SLICES / 8];
} gl_batch;

#endif
