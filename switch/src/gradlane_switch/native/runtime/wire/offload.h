/* SPDX-License-Identifier: Apache-2.0
 * Segmentation and checksum offload of packet sockets (virtio_net_hdr, virtio 1.2, 5.1.6). */
#ifndef GL_OFFLOAD_H
#define GL_OFFLOAD_H

#include "packets/buffers.h"
#include "wire/messages.h"

/* Makes packets of a frame that `slot` has whole: `length` bytes from packet->data on, the rest behind the first `room`
 * of them in slot->rest. Completes checksums. NULL if the header contradicts itself; else the first, chained by `next`.
 * `missing` counts the packets that there was no buffer for. */
gl_packet *gl_offload_cut(gl_pool *pool, gl_slot *slot, uint32_t length, uint32_t room, uint32_t origin,
                          gl_counter *missing);
/* How many packets, from the first on, can leave in one frame. Fills in what that needs: a header of GL_HEADERS bytes,
 * and `used` vectors: one, or one more than there are packets. */
uint32_t gl_offload_join(gl_packet **packets, uint32_t count, struct virtio_net_hdr *offload, uint8_t *header,
                         struct iovec *vectors, uint32_t *used);

#endif
