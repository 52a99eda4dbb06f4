/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The pool: which slots are unused stands apart, as what was used last is still in the cache, and the others are not.
 */
#include "base/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Bytes. A cache line, at which what is sent is to begin: the kernel puts batches at multiples of it, and its copy (rep movsb)
 * takes ten times as long where, modulo a page, the target begins up to 31 bytes behind the source (seen on Zen 3). A slab is
 * a huge page where the system has them. */
enum { ALIGNMENT = 64, SLAB = 2 << 20 };

struct slab {
    slab *next;
};

static bool grow(pool *p) {
    const size_t stride = (sizeof(slot) + p->slice_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const unsigned more = (unsigned)((SLAB - ALIGNMENT) / stride);
    slot **unused = realloc(p->unused, (p->slots + more) * sizeof *unused);
    if (!unused) return false;
    p->unused = unused;
    slab *s = aligned_alloc(SLAB, SLAB);
    if (!s) return false;
    madvise(s, SLAB, MADV_HUGEPAGE); /* refused by a kernel without them, which is as well */
    s->next = p->slabs, p->slabs = s;
    p->slots += more;
    for (unsigned i = more; i-- > 0;) unused[p->unused_count++] = (slot *)((uint8_t *)s + ALIGNMENT + i * stride);
    return true;
}

slot *slot_new(pool *p) {
    if (!p->unused_count && !grow(p)) return NULL;
    *p->used += p->slice_bytes;
    return p->unused[--p->unused_count];
}

slot *slot_hold(pool *p, const uint8_t *payload) {
    buffer_hold(p->buffers, payload);
    *p->used += p->slice_bytes;
    return (slot *)(payload - offsetof(slot, bytes));
}

void slot_free(pool *p, slot *s) {
    *p->used -= p->slice_bytes;
    if (buffers_have(p->buffers, s))
        buffer_release(p->buffers, s);
    else
        p->unused[p->unused_count++] = s;
}

void pool_free(pool *p) {
    for (slab *s = p->slabs, *next; s; s = next) next = s->next, free(s);
    free(p->unused);
    buffers_leave(p->buffers);
}
