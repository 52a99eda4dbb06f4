/* SPDX-License-Identifier: Apache-2.0
 * Packet buffers, and links that lose, delay and reorder. Every packet takes the same number of random draws, so what
 * happens to the n-th packet depends on the seed and n alone. */
#include <stdlib.h>

#include "port.h"

enum { SLAB_PACKETS = 128 };

static int refill(gl_pool *pool) {
    size_t size = sizeof(max_align_t) + SLAB_PACKETS * pool->packet_size;
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
    for (int i = 0; i < SLAB_PACKETS; i++) {
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
    packet->data = packet->room + GL_HEADROOM;
    return packet;
}

void gl_pool_clear(gl_pool *pool) {
    while (pool->slabs) {
        void *next = *(void **)pool->slabs;
        free(pool->slabs);
        pool->slabs = next;
    }
}

void gl_link_seed(gl_link *link, uint64_t seed) {
    /* splitmix64: neighbouring seeds give unrelated streams. */
    seed += 0x9e3779b97f4a7c15u;
    seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9u;
    seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebu;
    seed ^= seed >> 31;
    link->random = seed ? seed : 1;
}

static double uniform(gl_link *link) {
    return (double)(gl_random(&link->random) >> 11) * 0x1p-53;
}

static int before(const gl_packet *a, const gl_packet *b) {
    return a->due != b->due ? a->due < b->due : a->sequence < b->sequence;
}

static int push(gl_link *link, gl_packet *packet) {
    if (link->count == link->capacity) {
        uint32_t capacity = link->capacity ? 2 * link->capacity : 64;
        gl_packet **heap = realloc(link->heap, sizeof *heap * capacity);
        if (!heap) {
            return -1;
        }
        link->heap = heap;
        link->capacity = capacity;
    }
    uint32_t i = link->count++;
    while (i > 0 && before(packet, link->heap[(i - 1) / 2])) {
        link->heap[i] = link->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    link->heap[i] = packet;
    return 0;
}

static gl_packet *pop(gl_link *link) {
    gl_packet *first = link->heap[0], *last = link->heap[--link->count];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < link->count; i = child) {
        if (child + 1 < link->count && before(link->heap[child + 1], link->heap[child])) {
            child++;
        }
        if (!before(link->heap[child], last)) {
            break;
        }
        link->heap[i] = link->heap[child];
    }
    link->heap[i] = last;
    return first;
}

/* RFC 4737: a packet is reordered if one that entered after it was delivered before it. */
static void deliver(gl_link *link, const gl_packet *packet) {
    if (packet->sequence < link->delivered) {
        link->statistics.reordered++;
    } else {
        link->delivered = packet->sequence + 1;
    }
}

gl_link_result gl_link_enter(gl_link *link, gl_packet *packet, uint64_t now) {
    const gl_impairment *config = &link->config;
    double loss = uniform(link), jitter = uniform(link), reorder = uniform(link);
    packet->sequence = link->sequence++;
    if (loss < config->loss) {
        link->statistics.lost++;
        return GL_LINK_LOST;
    }
    uint64_t delay = config->delay + (uint64_t)(jitter * (double)config->jitter);
    if (reorder < config->reorder) {
        delay += config->reorder_delay;
    }
    /* What is due later than `now` waits; so does what would overtake a packet due at the same time. */
    packet->due = now + delay;
    if (delay == 0 && (link->count == 0 || link->heap[0]->due > now)) {
        deliver(link, packet);
        return GL_LINK_NOW;
    }
    if (push(link, packet)) {
        return GL_LINK_NO_MEMORY;
    }
    link->statistics.delayed += delay > 0;
    return GL_LINK_LATER;
}

gl_packet *gl_link_due(gl_link *link, uint64_t now) {
    if (link->count == 0 || link->heap[0]->due > now) {
        return NULL;
    }
    gl_packet *packet = pop(link);
    deliver(link, packet);
    return packet;
}
