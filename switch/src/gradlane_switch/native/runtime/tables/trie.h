/* SPDX-License-Identifier: Apache-2.0
 * Longest prefixes: a trie of 64-way nodes (Eatherton et al., Tree Bitmap, 2004) that leaves out levels where nothing
 * branches. */
#ifndef GL_TRIE_H
#define GL_TRIE_H

#include "base/bits.h"
#include "base/memory.h"
#include "tables/api.h"

enum {
    GL_STRIDE = 6,          /* bits of the key that a node branches by */
    GL_WORD_LEVELS = 11,    /* levels for a word of the exact fields */
    GL_SKIPPED = 10         /* levels that a node can leave out */
};

/* A node, and the levels left out between it and its parent. */
typedef struct gl_node gl_node;

struct gl_node {
    uint64_t prefixes;       /* bit (1 << n | value): there is an entry with these n more bits, n < GL_STRIDE */
    uint64_t branches;       /* bit per value of the next GL_STRIDE bits */
    gl_node *nodes;          /* one for each of them */
    union {
        gl_entry *entry;     /* of the only prefix, */
        gl_entry **entries;  /* or of all, in order */
    };
    uint64_t path;           /* the key's bits at the levels left out, from the lowest bits on */
    uint64_t skipped;        /* how many levels that is */
    uint64_t unused[2];
};

_Static_assert(sizeof(gl_node) == GL_CACHE_LINE, "a node is a cache line");

typedef struct {
    gl_node root;
    gl_blocks *blocks;       /* where other nodes and arrays of entries are */
    uint32_t exact;          /* words of the exact fields, in front of the prefix */
    uint32_t width;          /* bits of the prefix's field */
} gl_trie;

/* Makes room for `count` entries more, so that adding them is short and can't fail. Returns 0, or -1 for want of
 * memory. The caller does not hold the lock. */
int gl_trie_reserve(gl_trie *trie, uint32_t count);
/* These are called with the lock. A key has the exact fields, the field with the prefix, and the prefix's length. */
void gl_trie_add(gl_trie *trie, const uint64_t *key, gl_entry *entry);
void gl_trie_remove(gl_trie *trie, const uint64_t *key);

/* The bits of a key that a trie branches by at a level: each word of the exact fields from its highest bit on, then the
 * prefix, a field of `width` bits. What is beyond an end is zero. */
GL_INLINE uint32_t gl_chunk(const uint64_t *key, uint32_t exact, uint32_t width, uint32_t level) {
    if (level < GL_WORD_LEVELS * exact) {
        uint64_t word = key[level / GL_WORD_LEVELS];
        uint32_t end = GL_STRIDE * (level % GL_WORD_LEVELS + 1);
        return (uint32_t)(end <= 64 ? word >> (64 - end) : word << (end - 64)) & 63;
    }
    const uint64_t *prefix = key + exact;
    uint32_t end = GL_STRIDE * (level - GL_WORD_LEVELS * exact + 1);
    if (end > width) {
        return (uint32_t)(prefix[0] << (end - width)) & 63;
    }
    uint32_t low = width - end, word = low / 64, shift = low % 64;
    uint64_t bits = prefix[word] >> shift;
    if (shift > 64 - GL_STRIDE) {
        bits |= prefix[word + 1] << (64 - shift);
    }
    return (uint32_t)bits & 63;
}

/* The prefixes of a node that begin `chunk`, as in gl_node.prefixes. */
GL_INLINE uint64_t gl_prefixes_of(uint32_t chunk) {
    uint64_t set = 0;
    for (uint32_t i = 1; i <= GL_STRIDE; i++) {
        set |= UINT64_C(1) << ((chunk | 64) >> i);
    }
    return set;
}

/* The entry with the longest prefix. `key` has the exact fields, then the field with the prefix: `words` in all, `width`
 * bits of the prefix's field. Both are constants, so that the loops unroll. */
GL_INLINE gl_entry *gl_trie_find(const gl_trie *trie, const uint64_t *key, uint32_t words, uint32_t width) {
    uint32_t exact = words - (width + 63) / 64;
    const gl_node *node = &trie->root, *holder = NULL;
    uint32_t longest = 0;
    for (uint32_t level = 0;; level++) {
        uint64_t path = node->path;
        uint64_t skipped = node->skipped;
        for (; skipped && gl_chunk(key, exact, width, level) == (path & 63); skipped--) {
            path >>= GL_STRIDE;
            level++;
        }
        if (skipped) {
            break;
        }
        uint32_t chunk = gl_chunk(key, exact, width, level);
        uint64_t found = node->prefixes ? node->prefixes & gl_prefixes_of(chunk) : 0;
        if (found) {
            holder = node;
            longest = 63 - (uint32_t)__builtin_clzll(found);
        }
        if (!(node->branches >> chunk & 1)) {
            break;
        }
        node = node->nodes + gl_below(node->branches, chunk);
    }
    if (!holder) {
        return NULL;
    }
    uint64_t others = holder->prefixes & (holder->prefixes - 1);
    return others ? holder->entries[gl_below(holder->prefixes, longest)] : holder->entry;
}

#endif
