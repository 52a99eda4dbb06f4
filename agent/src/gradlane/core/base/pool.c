/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers of a slice each, for contributions that wait and results that are sent. They are used again last in, first out,
 * as what was used last is still in the cache; which ones are unused stands apart, as the others are not. None goes back to
 * the system before the engine ends.
 */
#include <sys/mman.h>

#include "engine/internal.h"

/* Bytes. A cache line, at which what is sent is to begin: the kernel puts batches at multiples of it, and its copy (rep movsb)
 * takes ten times as long where, modulo a page, the target begins up to 31 bytes behind the source (seen on Zen 3). A slab is
 * a huge page where the system has them. */
enum { ALIGNMENT = 64, SLAB = 2 << 20 };

static void grow(gl_engine *e) {
    const size_t stride = (sizeof(slot) + e->config.slice_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const unsigned more = (unsigned)((SLAB - ALIGNMENT) / stride);
    slab *s = aligned_alloc(SLAB, SLAB);
    slot **unused = realloc(e->unused, (e->slots + more) * sizeof *unused);
    if (!s || !unused) abort(); /* a slice that is neither kept nor asked for again would hang the training */
    madvise(s, SLAB, MADV_HUGEPAGE); /* refused by a kernel without them, which is as well */
    s->next = e->slabs, e->slabs = s;
    e->unused = unused, e->slots += more;
    for (unsigned i = more; i-- > 0;) unused[e->unused_count++] = (slot *)((uint8_t *)s + ALIGNMENT + i * stride);
}

slot *slot_new(gl_engine *e) {
    if (!e->unused_count) grow(e);
    e->statistics.memory_used += e->config.slice_bytes;
    return e->unused[--e->unused_count];
}

void slot_free(gl_engine *e, slot *s) {
    e->unused[e->unused_count++] = s;
    e->statistics.memory_used -= e->config.slice_bytes;
}

void pool_free(gl_engine *e) {
    for (slab *s = e->slabs, *next; s; s = next) next = s->next, free(s);
    free(e->unused);
}
