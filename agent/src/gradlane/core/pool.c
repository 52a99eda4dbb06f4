/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers of a slice each, for contributions that wait and results that are sent. They are used again last in, first out,
 * as what was used last is still in the cache; none goes back to the system before the engine ends.
 */
#include "internal.h"

enum { ALIGNMENT = 64, SLAB = 64 }; /* bytes; buffers */

static size_t stride_of(const gl_engine *e) {
    return (sizeof(slot) + e->config.slice_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

slot *slot_new(gl_engine *e) {
    if (!e->unused) {
        const size_t stride = stride_of(e);
        slab *more = aligned_alloc(ALIGNMENT, ALIGNMENT + SLAB * stride);
        if (!more) abort(); /* a slice that is neither kept nor asked for again would hang the training */
        more->next = e->slabs, e->slabs = more;
        for (unsigned i = 0; i < SLAB; i++) {
            slot *s = (slot *)((uint8_t *)more + ALIGNMENT + (SLAB - 1 - i) * stride);
            s->next = e->unused, e->unused = s;
        }
    }
    slot *s = e->unused;
    e->unused = s->next;
    e->statistics.memory_used += e->config.slice_bytes;
    return s;
}

void slot_free(gl_engine *e, slot *s) {
    s->next = e->unused, e->unused = s;
    e->statistics.memory_used -= e->config.slice_bytes;
}

void pool_free(gl_engine *e) {
    for (slab *s = e->slabs, *next; s; s = next) next = s->next, free(s);
}
