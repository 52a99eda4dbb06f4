/* SPDX-License-Identifier: Apache-2.0 */
#include "packets/buffers.h"

#include <stdlib.h>
#include <string.h>

static int refill(gl_pool *pool) {
    size_t size = sizeof(max_align_t) + GL_SLAB_PACKETS * pool->packet_size;
    if (size > pool->limit) {
        return -1;
    }
    char *slab = malloc(size);
    if (!slab) {
        return -1;
    }
    pool->limit -= size;
    *(void **)slab = pool->slabs;
    pool->slabs = slab;
    for (int i = 0; i < GL_SLAB_PACKETS; i++) {
        gl_pool_put(pool, (gl_packet *)(slab + sizeof(max_align_t) + i * pool->packet_size));
    }
    return 0;
}

gl_packet *gl_pool_get(gl_pool *pool) {
    if (!pool->free && refill(pool)) {
        return NULL;
    }
    gl_packet *packet = pool->free;
    pool->free = packet->next;
    return gl_fresh(packet);
}

void gl_pool_clear(gl_pool *pool) {
    while (pool->slabs) {
        void *next = *(void **)pool->slabs;
        free(pool->slabs);
        pool->slabs = next;
    }
}

void *gl_store_keep(gl_store *store, const void *state, size_t bytes, size_t size) {
    if (store->size != size) {
        gl_store_clear(store);
        store->size = size;
    }
    void *kept = store->free;
    if (kept) {
        store->free = *(void **)kept;
    } else if (!(kept = malloc(size))) {
        return NULL;
    }
    return memcpy(kept, state, bytes);
}

void gl_store_clear(gl_store *store) {
    while (store->free) {
        void *next = *(void **)store->free;
        free(store->free);
        store->free = next;
    }
}
