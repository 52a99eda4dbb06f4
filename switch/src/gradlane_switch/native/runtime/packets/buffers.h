/* SPDX-License-Identifier: Apache-2.0
 * Memory of packets: buffers, and what programs keep of those that wait. */
#ifndef GL_BUFFERS_H
#define GL_BUFFERS_H

#include "packets/packet.h"

/* Packets that are allocated together. With one, a sanitizer sees where each ends. */
#ifndef GL_SLAB_PACKETS
#define GL_SLAB_PACKETS 128
#endif

typedef struct {
    gl_packet *free;
    void *slabs;             /* chained through their first word */
    size_t packet_size;
    uint64_t limit;          /* bytes that may still be allocated */
} gl_pool;

/* NULL for want of memory. */
gl_packet *gl_pool_get(gl_pool *pool);
void gl_pool_clear(gl_pool *pool);

static inline void gl_pool_put(gl_pool *pool, gl_packet *packet) {
    packet->next = pool->free;
    pool->free = packet;
}

/* What programs keep of packets that wait: blocks of one size at a time, because they are one program's. */
typedef struct {
    void *free;              /* chained through their first word */
    size_t size;             /* bytes */
} gl_store;

/* A block of `size` bytes that begins with a copy of `bytes`; NULL for want of memory. Of another size only when all have
 * been put back. */
void *gl_store_keep(gl_store *store, const void *state, size_t bytes, size_t size);
void gl_store_clear(gl_store *store);

static inline void gl_store_put(gl_store *store, void *kept) {
    if (kept) {
        *(void **)kept = store->free;
        store->free = kept;
    }
}

#endif
