/* SPDX-License-Identifier: Apache-2.0
 * A match-action table. */
#ifndef GL_TABLE_H
#define GL_TABLE_H

#include "tables/lookup.h"

typedef struct {
    gl_entry *fallback;      /* what a miss takes */
    gl_lookup lookup;
    gl_blocks blocks;        /* entries, their meters, and nodes of a trie */
    gl_table_shape shape;
} gl_table;

static const uint64_t GL_NOWHERE = ~UINT64_C(0);  /* gl_entry.place of an entry that is in no table */

static inline uint64_t *gl_key_of(const gl_table *table, gl_entry *entry) {
    return entry->arguments + table->shape.argument_words;
}

#endif
