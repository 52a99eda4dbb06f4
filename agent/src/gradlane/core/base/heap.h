/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A binary heap of items that know their place in it, so that any of them can be moved or taken out.
 */
#ifndef GRADLANE_HEAP_H
#define GRADLANE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t key;
    uint32_t place; /* in its heap, from 1; 0: in none */
} heap_item;

typedef struct {
    heap_item **items; /* the one with the least key first */
    uint32_t count, space;
} heap;

/* What an item is a member of. */
#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

bool heap_put(heap *h, heap_item *item, uint64_t key); /* or moves it, which can't fail; false: memory is out */
bool heap_reserve(heap *h, uint32_t space); /* so many items can then be put without memory; false: it is out */
void heap_remove(heap *h, heap_item *item);            /* if it is in there */
static inline heap_item *heap_first(const heap *h) { return h->count ? h->items[0] : NULL; }

#endif
