/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers of a slice each, for contributions that wait and results that are sent. They are used again last in, first out.
 * None goes back to the system before the pool ends.
 */
#ifndef GRADLANE_POOL_H
#define GRADLANE_POOL_H

#include <stdint.h>

#include "wire.h"

/* A contribution that waits, or a result that is sent: with its header in one piece. */
typedef struct {
    uint8_t header[GL_HEADER]; /* of a contribution: its length only */
    uint8_t bytes[];
} slot;

typedef struct slab slab;

typedef struct {
    uint32_t slice_bytes;
    uint64_t *used; /* bytes of the slots that are in use are counted here */
    slot **unused;  /* those that were used last at the end */
    unsigned unused_count, slots;
    slab *slabs;
} pool;

slot *slot_new(pool *p); /* NULL: memory is out */
void slot_free(pool *p, slot *s);
void pool_free(pool *p);

#endif
