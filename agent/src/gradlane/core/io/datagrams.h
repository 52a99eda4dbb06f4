/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine's batches on UDP sockets: UDP_SEGMENT out and UDP_GRO in (Linux 4.18 and 5.0).
 */
#ifndef GRADLANE_DATAGRAMS_H
#define GRADLANE_DATAGRAMS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "base/batch.h"

/* What a call takes in stays in the cache until it has been looked at. */
enum { RECEIVE_BATCH = 4, RECEIVE_BYTES = 65536 };

/* Where an engine sends, and how that went. */
typedef struct {
    int fd;
    struct sockaddr_storage *peers;
    bool segmentation; /* until the interface has refused it for good */
    uint64_t unsegmented, errors;
    int last_error;
    uint64_t full_until; /* the socket's buffer is full: no batch before */
} outlet;

/* Never waits. What the kernel does not take is lost, as in the network. */
void send_batch(outlet *out, const gl_batch *batch);

typedef uint8_t receive_buffer[RECEIVE_BYTES];
typedef void take_datagram(void *context, const uint8_t *datagram, uint32_t length, int congested, uint64_t now);
/* Hands what a socket holds to `take`. Returns whether there may be more. */
bool receive_batch(int fd, receive_buffer *buffers, take_datagram *take, void *context);

#endif
