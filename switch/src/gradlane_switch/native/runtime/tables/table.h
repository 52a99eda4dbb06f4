/* SPDX-License-Identifier: Apache-2.0
 * Match-action tables as packets look into them. The counts are constants where these functions are called, so the loops
 * unroll.
 *
 * Exact tables hash. LPM tables are a trie of 64-way nodes (Eatherton et al., Tree Bitmap, 2004) that leaves out levels
 * where nothing branches. The others are lists, with an index of bits once they are long: see gl_find_indexed. */
#ifndef GL_TABLE_H
#define GL_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "state/api.h"
#include "base/memory.h"
#include "base/wide.h"

enum {
    GL_SCAN = 16,           /* rows that are looked through without an index */
    GL_PIECE_MASK = (1 << GL_PIECE) - 1,
    GL_STRIDE = 6,          /* bits of the key that a node of a trie branches by */
    GL_WORD_LEVELS = 11,    /* levels of a trie for a word of the exact fields */
    GL_SKIPPED = 10         /* levels that a node can leave out */
};

/* A node of a trie, and the levels left out between it and its parent. */
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

struct gl_table {
    gl_entry *fallback;
    /* Exact tables: open addressing, linear probing, at most half full. A slot is an entry's address, which has 48 bits,
     * below the upper 16 bits of its hash; 0: empty. */
    uint64_t *slots;
    uint32_t capacity;       /* slots, a power of two; in a list rows */
    uint32_t used;           /* slots */
    /* Lists. Rows are (entry, key words, operand words), from `first` to the end; where an entry was removed it is NULL.
     * The higher its rank, the better a row is. */
    uint32_t first;
    uint32_t live;
    uint64_t *rows, *ranks;
    uint64_t *accepts;       /* the index, see below; NULL: none */
    uint64_t *summary;
    uint64_t *best;          /* by group of 64 rows: no rank in it or in a later one is higher */
    uint32_t groups;         /* a multiple of 8 */
    uint32_t spans;          /* words with a bit for each group */
    uint32_t row_words;
    uint32_t sequence;       /* of the next entry */
    uint64_t weights[GL_INDEXED];  /* values of each indexed piece that rows accept, in all */
    uint16_t order[GL_INDEXED];    /* indexed pieces, those that accept least first, */
    uint32_t useful;               /* and how many of them some row does not accept every value of */
    gl_node root;            /* of the trie of an LPM table */
    gl_blocks blocks;        /* entries and nodes */
    gl_table_shape shape;
};

/* ---- Exact tables ---- */

GL_INLINE uint64_t gl_hash(const uint64_t *key, uint32_t words) {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < words; i++) {
        h = (h ^ key[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

static const uint64_t GL_ADDRESS = (UINT64_C(1) << 48) - 1;

/* The key is behind so many words of arguments in an entry. */
GL_INLINE gl_entry *gl_find(const gl_table *table, const uint64_t *key, uint32_t words, uint32_t arguments) {
    uint64_t hash = gl_hash(key, words);
    uint32_t mask = table->capacity - 1;
    for (uint32_t i = (uint32_t)hash & mask;; i = (i + 1) & mask) {
        uint64_t slot = table->slots[i];
        if (!slot) {
            return NULL;
        }
        if ((slot ^ hash) >> 48 == 0) {
            gl_entry *entry = (gl_entry *)(uintptr_t)(slot & GL_ADDRESS);
            if (gl_wide_equal(entry->arguments + arguments, key, words)) {
                return entry;
            }
        }
    }
}

/* ---- LPM tables ---- */

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

/* How many bits are set. (Compilers call a function for it unless they may use newer instructions.) */
GL_INLINE uint32_t gl_population(uint64_t bits) {
    bits -= bits >> 1 & UINT64_C(0x5555555555555555);
    bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
    bits = (bits + (bits >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (uint32_t)(bits * UINT64_C(0x0101010101010101) >> 56);
}

/* How many of the bits below one are set. */
GL_INLINE uint32_t gl_below(uint64_t bits, uint32_t bit) {
    return gl_population(bits & ((UINT64_C(1) << bit) - 1));
}

/* The prefixes of a node that begin `chunk`, as in gl_node.prefixes. */
GL_INLINE uint64_t gl_prefixes_of(uint32_t chunk) {
    uint64_t set = 0;
    for (uint32_t i = 1; i <= GL_STRIDE; i++) {
        set |= UINT64_C(1) << ((chunk | 64) >> i);
    }
    return set;
}

/* `key` has the exact fields, then the field with the prefix. */
GL_INLINE gl_entry *gl_find_longest(const gl_table *table, const uint64_t *key, uint32_t words, uint32_t width) {
    uint32_t exact = words - (width + 63) / 64;
    const gl_node *node = &table->root, *holder = NULL;
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

/* ---- Lists ---- */

/* Whether a list's row accepts a key. Bit i of `ranges`: word i is a range (value <= key <= operand), otherwise a mask
 * (key & operand == value); bit i of `continued`: it is the same range as the word below. */
GL_INLINE int gl_accepts(const uint64_t *row, const uint64_t *key, uint32_t words, uint64_t ranges, uint64_t continued) {
    int matches = 1, above = 1, below = 1;
    for (uint32_t i = 0; i < words; i++) {
        uint64_t value = row[1 + i], operand = row[1 + words + i];
        if (ranges >> i & 1) {
            int first = !(continued >> i & 1);
            above = value < key[i] || (value == key[i] && (first || above));
            below = key[i] < operand || (key[i] == operand && (first || below));
            if (i + 1 == words || !(continued >> (i + 1) & 1)) {
                matches &= above & below;
            }
        } else {
            matches &= (key[i] & operand) == value;
        }
    }
    return matches;
}

typedef uint64_t gl_two __attribute__((vector_size(16)));

/* The bits of eight groups of rows: a cache line. */
typedef struct {
    gl_two a, b, c, d;
} gl_eight;

/* Keeps the bits of a line that are set in another. Returns whether any are. */
GL_INLINE int gl_meet(gl_eight *set, const gl_eight *line) {
    set->a &= line->a;
    set->b &= line->b;
    set->c &= line->c;
    set->d &= line->d;
    gl_two any = (set->a | set->b) | (set->c | set->d);
    return (any[0] | any[1]) != 0;
}

/* The best of the rows that accept a key. The index tells for each piece of the key which rows accept each of its 16
 * values, as a bit per row (Lakshman and Stiliadis, 1998), and a summary (Baboescu and Varghese, 2001) in which of their
 * groups of 64 there are any. What all pieces accept is compared in full. So a lookup's cost depends on the number of
 * rows, not on their masks and ranges; similar rows are in the same groups, which rules most groups out. */
GL_INLINE gl_entry *gl_find_indexed(const gl_table *table, const uint64_t *key, uint32_t words, uint64_t ranges,
                                    uint64_t continued) {
    uint32_t lines[GL_INDEXED], useful = table->useful, groups = table->groups, spans = table->spans;
    for (uint32_t c = 0; c < useful; c++) {
        uint32_t piece = table->order[c], low = GL_PIECE * table->shape.pieces[piece];
        lines[c] = piece << GL_PIECE | (key[low / 64] >> low % 64 & GL_PIECE_MASK);
    }
    const uint64_t *best = NULL;
    uint64_t rank = 0;
    for (uint32_t span = 0; span < spans; span++) {
        uint64_t left = ~UINT64_C(0);
        for (uint32_t c = 0; c < useful && left; c++) {
            left &= table->summary[(size_t)lines[c] * spans + span];
        }
        while (left) {
            uint32_t eight = (uint32_t)__builtin_ctzll(left) / 8, group = 64 * span + 8 * eight;
            left &= ~(UINT64_C(0xff) << 8 * eight);
            if (group >= groups || table->best[group] < rank) {
                break;
            }
            const gl_two all = ~(gl_two){0};
            gl_eight set = {all, all, all, all};
            int any = 1;
            for (uint32_t c = 0; c < useful && any; c++) {
                any = gl_meet(&set, (const gl_eight *)(table->accepts + (size_t)lines[c] * groups + group));
            }
            if (!any) {
                continue;
            }
            uint64_t bits[8];
            memcpy(bits, &set, sizeof bits);
            for (uint32_t i = 0; i < 8; i++) {
                for (uint64_t rest = bits[i]; rest && table->best[group + i] > rank; rest &= rest - 1) {
                    uint32_t slot = 64 * (group + i) + (uint32_t)__builtin_ctzll(rest);
                    const uint64_t *row = table->rows + (size_t)slot * (1 + 2 * words);
                    if (row[0] && table->ranks[slot] > rank && gl_accepts(row, key, words, ranges, continued)) {
                        best = row;
                        rank = table->ranks[slot];
                    }
                }
            }
        }
    }
    return best ? (gl_entry *)(uintptr_t)best[0] : NULL;
}

GL_INLINE gl_entry *gl_find_first(const gl_table *table, const uint64_t *key, uint32_t words, uint64_t ranges,
                                  uint64_t continued) {
    if (table->accepts) {
        return gl_find_indexed(table, key, words, ranges, continued);
    }
    const uint64_t *best = NULL;
    uint64_t rank = 0;
    for (uint32_t i = table->first; i < table->capacity; i++) {
        const uint64_t *row = table->rows + (size_t)i * (1 + 2 * words);
        if (row[0] && table->ranks[i] > rank && gl_accepts(row, key, words, ranges, continued)) {
            best = row;
            rank = table->ranks[i];
        }
    }
    return best ? (gl_entry *)(uintptr_t)best[0] : NULL;
}

/* ---- Changes: table.c, and a file for each kind of table ---- */

static const uint64_t GL_NOWHERE = ~UINT64_C(0);  /* gl_entry.place of an entry that is in no table */

/* Makes room for `count` entries more, so that adding them is short and can't fail. Returns 0, or -1 for want of
 * memory. The caller does not hold the lock. */
int gl_exact_reserve(gl_state *state, gl_table *table, uint32_t count);
int gl_trie_reserve(gl_table *table, uint32_t count);
int gl_list_reserve(gl_state *state, gl_table *table, uint32_t count);
/* These are called with the lock. An entry has its key behind its arguments, in a list followed by the operands. */
void gl_exact_add(gl_table *table, gl_entry *entry);
void gl_exact_remove(gl_table *table, gl_entry *entry);
void gl_trie_add(gl_table *table, gl_entry *entry);
void gl_trie_remove(gl_table *table, gl_entry *entry);
void gl_list_add(gl_table *table, gl_entry *entry);
void gl_list_remove(gl_table *table, gl_entry *entry);
void gl_list_free(gl_table *table);
void gl_table_free(gl_table *table);

static inline uint64_t *gl_key_of(const gl_table *table, gl_entry *entry) {
    return entry->arguments + table->shape.argument_words;
}

#endif
