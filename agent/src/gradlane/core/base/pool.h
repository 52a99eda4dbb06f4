/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Slots of a slice each, for contributions that wait and results that are sent: the pool's own, which are used again last in,
 * first out, and go back to the system when the pool ends; or where a datagram has come in.
 */
#ifndef GRADLANE_POOL_H
#define GRADLANE_POOL_H

#include <stdint.h>

#include "base/buffers.h"

#include "wire.h"

/* A contribution that waits, or a result that is sent: with its header in one piece, as it was received, or is sent. */
typedef struct {
    uint8_t header[GL_HEADER]; /* of a contribution that was copied: its length only */
    uint8_t bytes[];
} slot;

typedef struct slab slab;

typedef struct {
    uint32_t slice_bytes;
    uint64_t *used; /* bytes of the slots that are in use are counted here */
    slot **unused;  /* those that were used last at the end */
    unsigned unused_count, slots;
    slab *slabs;
    buffers *buffers; /* that datagrams come in; NULL: none that may be held */
} pool;

slot *slot_new(pool *p); /* NULL: memory is out */
slot *slot_hold(pool *p, const uint8_t *payload); /* of a datagram in one of the buffers: it is not copied */
void slot_free(pool *p, slot *s);
void pool_free(pool *p);

#endif
