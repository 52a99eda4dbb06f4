/* SPDX-License-Identifier: Apache-2.0
 * Every draw is a function of the seed, the packet's number and what is drawn, so what happens to the n-th packet does
 * not depend on when it came, nor on which other impairments there are. */
#include "wire/link.h"

#include <stdlib.h>
#include <string.h>

#include "base/counter.h"

/* ---- Draws ---- */

enum { LOSS, BURST, BURST_LOSS, JITTER, REORDER, DUPLICATE, CORRUPT, BIT, DRAWS };

/* A draw for the packet that enters: the splitmix64 generator's output at a position of its own. */
static uint64_t draw(const gl_link *link, uint32_t what) {
    uint64_t x = link->seed + (link->sequence * DRAWS + what + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static double uniform(const gl_link *link, uint32_t what) {
    return (double)(draw(link, what) >> 11) * 0x1p-53;
}

void gl_link_configure(gl_link *link, gl_impairment config) {
    link->config = config;
    link->impaired = config.loss > 0 || config.burst_loss.enter > 0 || config.burst_loss.good > 0 || config.delay ||
                     config.jitter || config.reorder > 0 || config.duplicate > 0 || config.corrupt > 0;
    if (config.burst_loss.enter <= 0) {
        link->bad = 0;
    }
}

/* ---- Packets in flight ---- */

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

/* RFC 4737: a packet is reordered if one that entered after it was delivered before it. A duplicate has the number of
 * its original. */
static void deliver(gl_link *link, const gl_packet *packet) {
    if (packet->sequence + 1 < link->delivered) {
        link->statistics.reordered++;
    } else {
        link->delivered = packet->sequence + 1;
    }
}

/* ---- Entering and leaving ---- */

static int is_lost(gl_link *link) {
    const gl_impairment *config = &link->config;
    const gl_burst_loss *burst = &config->burst_loss;
    if (burst->enter > 0) {
        link->bad = uniform(link, BURST) < (link->bad ? burst->leave : burst->enter) ? !link->bad : link->bad;
    }
    return uniform(link, LOSS) < config->loss || uniform(link, BURST_LOSS) < (link->bad ? burst->bad : burst->good);
}

static void corrupt(gl_link *link, gl_packet *packet) {
    uint64_t bit = draw(link, BIT) % (8 * (uint64_t)packet->length);
    packet->data[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
    link->statistics.corrupted++;
}

static gl_packet *duplicate(gl_pool *pool, const gl_packet *packet) {
    gl_packet *copy = gl_pool_get(pool);
    if (copy) {
        /* A program may have made the packet longer than a frame, towards the front. */
        copy->data = copy->room + (packet->data - packet->room);
        copy->port = packet->port;
        copy->sequence = packet->sequence;
        copy->length = packet->length;
        memcpy(copy->data, packet->data, copy->length);
    }
    return copy;
}

gl_link_result gl_link_enter(gl_link *link, gl_pool *pool, gl_packet *packet, uint64_t now, gl_packet **twin) {
    const gl_impairment *config = &link->config;
    gl_packet *copy = NULL;
    uint64_t delay = 0;
    *twin = NULL;
    packet->sequence = link->sequence;
    if (link->impaired) {
        if (is_lost(link)) {
            gl_tally(&link->statistics.lost, packet->length);
            link->sequence++;
            return GL_LINK_LOST;
        }
        delay = config->delay + (uint64_t)(uniform(link, JITTER) * (double)config->jitter);
        if (uniform(link, REORDER) < config->reorder) {
            delay += config->reorder_delay;
        }
        if (uniform(link, CORRUPT) < config->corrupt && packet->length) {
            corrupt(link, packet);
        }
        copy = uniform(link, DUPLICATE) < config->duplicate ? duplicate(pool, packet) : NULL;
    }
    link->sequence++;
    /* What is due later than `now` waits; so does what would overtake a packet due at the same time. */
    packet->due = now + delay;
    gl_link_result result = GL_LINK_NOW;
    if (delay == 0 && (link->count == 0 || link->heap[0]->due > now)) {
        deliver(link, packet);
    } else if (push(link, packet) == 0) {
        link->statistics.delayed += delay > 0;
        result = GL_LINK_LATER;
    } else {
        result = GL_LINK_NO_MEMORY;
    }
    if (!copy) {
        return result;
    }
    copy->due = packet->due;
    if (result == GL_LINK_NO_MEMORY || (result == GL_LINK_LATER && push(link, copy))) {
        gl_pool_put(pool, copy);
        return result;
    }
    gl_tally(&link->statistics.duplicated, copy->length);
    *twin = result == GL_LINK_NOW ? copy : NULL;
    return result;
}

gl_packet *gl_link_due(gl_link *link, uint64_t now) {
    if (link->count == 0 || link->heap[0]->due > now) {
        return NULL;
    }
    gl_packet *packet = pop(link);
    deliver(link, packet);
    return packet;
}
