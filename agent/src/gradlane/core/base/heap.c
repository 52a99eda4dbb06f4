/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The heap.
 */
#include "base/heap.h"

#include <stdlib.h>

static void place(heap *h, uint32_t at, heap_item *item) {
    h->items[at] = item;
    item->place = at + 1;
}

static void up(heap *h, uint32_t at, heap_item *item) {
    for (uint32_t parent; at && h->items[parent = (at - 1) / 2]->key > item->key; at = parent) place(h, at, h->items[parent]);
    place(h, at, item);
}

static void down(heap *h, uint32_t at, heap_item *item) {
    for (uint32_t child; (child = 2 * at + 1) < h->count; at = child) {
        if (child + 1 < h->count && h->items[child + 1]->key < h->items[child]->key) child++;
        if (h->items[child]->key >= item->key) break;
        place(h, at, h->items[child]);
    }
    place(h, at, item);
}

bool heap_reserve(heap *h, uint32_t space) {
    if (space <= h->space) return true;
    heap_item **items = realloc(h->items, space * sizeof *items);
    if (!items) return false;
    h->items = items, h->space = space;
    return true;
}

bool heap_put(heap *h, heap_item *item, uint64_t key) {
    if (!item->place) {
        if (h->count == h->space && !heap_reserve(h, h->space ? 2 * h->space : 64)) return false;
        item->key = key;
        up(h, h->count++, item);
    } else {
        const bool rises = key < item->key;
        item->key = key;
        (rises ? up : down)(h, item->place - 1, item);
    }
    return true;
}

void heap_remove(heap *h, heap_item *item) {
    if (!item->place) return;
    const uint32_t at = item->place - 1;
    heap_item *last = h->items[--h->count];
    item->place = 0;
    if (last == item) return;
    (last->key < item->key ? up : down)(h, at, last);
}
