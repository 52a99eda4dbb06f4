/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The buffers: those that were released last are taken first, as they are still in the cache.
 */
#include "base/buffers.h"

#include <stdlib.h>
#include <sys/mman.h>

buffers *buffers_new(uint32_t count) {
    buffers *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    *b = (buffers){.count = count, .users = 1};
    /* What is never taken costs nothing. */
    void *memory = mmap(NULL, (size_t)count * BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    b->memory = memory == MAP_FAILED ? NULL : memory;
    b->holds = calloc(count, sizeof *b->holds), b->next = calloc(count, sizeof *b->next);
    if (!b->memory || !b->holds || !b->next) return buffers_leave(b), NULL;
    for (uint32_t i = 0; i < count; i++) b->next[i] = i + 2 <= count ? i + 2 : 0;
    b->unused = count > 0;
    return b;
}

void buffers_use(buffers *b) { __atomic_fetch_add(&b->users, 1, __ATOMIC_RELAXED); }

void buffers_leave(buffers *b) {
    if (!b || __atomic_sub_fetch(&b->users, 1, __ATOMIC_ACQ_REL)) return;
    if (b->memory) munmap(b->memory, (size_t)b->count * BUFFER_BYTES);
    free(b->holds), free(b->next), free(b);
}

static uint8_t *take(buffers *b, uint32_t number) {
    __atomic_store_n(&b->unused, b->next[number - 1], __ATOMIC_RELAXED);
    b->holds[number - 1] = 1;
    return b->memory + (size_t)(number - 1) * BUFFER_BYTES;
}

/* What was released goes in front of what has been there longer. */
static void collect(buffers *b) {
    const uint32_t first = __atomic_exchange_n(&b->released, 0, __ATOMIC_ACQUIRE);
    if (!first) return;
    uint32_t *last = &b->next[first - 1];
    while (*last) last = &b->next[*last - 1];
    *last = b->unused;
    __atomic_store_n(&b->unused, first, __ATOMIC_RELAXED);
}

uint8_t *buffer_take(buffers *b) {
    collect(b);
    return b->unused ? take(b, b->unused) : NULL;
}

uint8_t *buffer_exchange(buffers *b, uint8_t *taken) {
    if (__atomic_load_n(buffer_holds(b, taken), __ATOMIC_ACQUIRE) == 1) return taken;
    uint8_t *other = buffer_take(b);
    buffer_release(b, taken);
    return other;
}

/* They are put on a list of which all are taken at once, so nobody takes one that is being put there again. */
void buffer_release(buffers *b, const void *within) {
    uint32_t *holds = buffer_holds(b, within);
    if (__atomic_sub_fetch(holds, 1, __ATOMIC_ACQ_REL)) return;
    const uint32_t number = (uint32_t)(holds - b->holds) + 1;
    uint32_t first = __atomic_load_n(&b->released, __ATOMIC_RELAXED);
    do {
        b->next[number - 1] = first;
    } while (!__atomic_compare_exchange_n(&b->released, &first, number, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}
