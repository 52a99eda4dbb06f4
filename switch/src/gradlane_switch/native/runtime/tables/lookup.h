/* SPDX-License-Identifier: Apache-2.0
 * How a table finds the entry that a key hits: one of three lookups, by kind. */
#ifndef GL_LOOKUP_H
#define GL_LOOKUP_H

#include "base/lock.h"
#include "base/memory.h"
#include "tables/exact.h"
#include "tables/list.h"
#include "tables/trie.h"

/* Zeroed, it is an exact one without entries. */
typedef struct {
    uint32_t kind;           /* GL_TABLE_EXACT ... */
    union {
        gl_exact exact;
        gl_trie trie;
        gl_list list;
    };
} gl_lookup;

/* Keys are in entries, behind their arguments, and in lists followed by the operands. `blocks`: for nodes. */
void gl_lookup_init(gl_lookup *lookup, const gl_table_shape *shape, gl_blocks *blocks);
void gl_lookup_free(gl_lookup *lookup);
/* Makes room for `count` entries more, so that adding them is short and can't fail. Returns 0, or -1 for want of
 * memory. The caller does not hold the lock. */
int gl_lookup_reserve(gl_lookup *lookup, gl_lock *lock, uint32_t count);
/* The same for taking one out, which can do without, but then keeps more memory than it needs. */
void gl_lookup_prepare_removal(gl_lookup *lookup);
/* These are called with the lock. */
void gl_lookup_add(gl_lookup *lookup, const uint64_t *key, gl_entry *entry);
void gl_lookup_remove(gl_lookup *lookup, const uint64_t *key, gl_entry *entry);

#endif
