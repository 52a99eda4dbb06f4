/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * An engine's batches on UDP sockets: UDP_SEGMENT out and UDP_GRO in (Linux 4.18 and 5.0).
 */
#ifndef GRADLANE_DATAGRAMS_H
#define GRADLANE_DATAGRAMS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "base/batch.h"
#include "base/buffers.h"

/* What a call takes in stays in the cache until it has been looked at. */
enum { RECEIVE_BATCH = 4 };

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

/* Where datagrams come in. */
typedef struct {
    buffers *buffers;
    uint8_t *taken[RECEIVE_BATCH];
    int count; /* of those */
} inlet;

/* False: memory is out; inlet_free is called in any case. */
bool inlet_new(inlet *in);
void inlet_free(inlet *in);
/* Takes what it lacks, as far as there is some. False: it has none. */
bool inlet_refill(inlet *in);

/* Datagrams of `segment` bytes each but the last, as receive_train has them (engine/receiving.h). */
typedef void take_train(void *context, const uint8_t *datagrams, uint32_t bytes, uint32_t segment, bool congested, bool held,
                        uint64_t now);
/* Hands what a socket holds to `take`. Returns how often; if it is RECEIVE_BATCH, there may be more. */
int receive_batch(int fd, inlet *in, take_train *take, void *context);

#endif
