/* SPDX-License-Identifier: Apache-2.0
 * Memory of tables. What is large lies in large pages: tables are read at random, and each small page would cost a walk
 * through the page tables. */
#ifndef GL_MEMORY_H
#define GL_MEMORY_H

#include <stddef.h>
#include <stdint.h>

enum { GL_CACHE_LINE = 64 };

/* Zeroed memory that begins at a cache line, and is there at once; NULL for want of it. */
void *gl_memory_new(size_t size);
void gl_memory_free(void *memory, size_t size);

/* Blocks of whole cache lines, cut from slabs. */
typedef struct gl_slab gl_slab;

typedef struct {
    gl_slab *slabs;
    uint8_t *next;           /* what is left of the newest slab */
    size_t left;             /* bytes */
    void **free;             /* by number of lines, chained through their first word */
    uint32_t most;           /* lines of the longest block */
} gl_blocks;

/* These two return 0, or -1 for want of memory. */
int gl_blocks_init(gl_blocks *blocks, uint32_t most);
/* Makes sure that blocks of `lines` in all can be had. */
int gl_blocks_reserve(gl_blocks *blocks, size_t lines);
/* A zeroed block; NULL for want of memory. */
void *gl_block_get(gl_blocks *blocks, uint32_t lines);
void gl_block_put(gl_blocks *blocks, void *block, uint32_t lines);
/* Frees all of them. */
void gl_blocks_clear(gl_blocks *blocks);

static inline uint32_t gl_lines(size_t size) {
    return (uint32_t)((size + GL_CACHE_LINE - 1) / GL_CACHE_LINE);
}

#endif
