/* SPDX-License-Identifier: Apache-2.0
 * Match-action tables as packets look into them. The counts are constants where these functions are called, so the loops
 * unroll.
 *
 * Exact and LPM tables hash: open addressing, rows of (entry, key words), linear probing, at most half full; an LPM
 * table's key ends with the prefix length. A list has rows of (entry, key words, operand words) in no order, and the
 * rank of each, which is the higher the better. Once it has more than GL_SCAN rows, an index tells for each byte of the
 * key which rows accept each of its 256 values, as a bit per row; what all bytes accept is then compared in full. So a
 * lookup's cost depends on the number of rows, and hardly on their masks and ranges: a few cache lines per 512 rows. */
#ifndef GL_TABLE_H
#define GL_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "api.h"
#include "wide.h"

enum {
    GL_SCAN = 16,          /* rows that are looked through without an index */
    GL_BLOCK = 512,        /* rows that share a block of the index: a cache line of bits */
    GL_LINE = GL_BLOCK / 64
};

struct gl_table {
    uint64_t *rows;
    uint64_t *ranks;         /* of a list's rows */
    gl_entry *fallback;
    uint32_t used;
    uint32_t capacity;       /* rows; a power of two in a hash table */
    uint32_t row_words;
    uint32_t length_count;
    uint64_t **blocks;       /* of the index: a line for each of the 256 values of each indexed byte; NULL: no index yet */
    uint32_t block_count;
    uint32_t sequence;       /* of the next entry */
    gl_table_shape shape;
    uint16_t order[GL_INDEXED];              /* indexed bytes, those that accept least first */
    uint64_t weights[GL_INDEXED];            /* values that rows accept, in all */
    uint16_t lengths[GL_LONGEST_PREFIX + 1]; /* prefix lengths in use, longest first */
    uint32_t prefixes[GL_LONGEST_PREFIX + 1]; /* entries per prefix length */
};

GL_INLINE uint64_t gl_hash(const uint64_t *key, uint32_t words) {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < words; i++) {
        h = (h ^ key[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

GL_INLINE gl_entry *gl_find(const gl_table *table, const uint64_t *key, uint32_t words) {
    uint32_t mask = table->capacity - 1;
    for (uint32_t i = (uint32_t)gl_hash(key, words) & mask;; i = (i + 1) & mask) {
        const uint64_t *row = table->rows + (size_t)i * (words + 1);
        if (!row[0]) {
            return NULL;
        }
        if (gl_wide_equal(row + 1, key, words)) {
            return (gl_entry *)(uintptr_t)row[0];
        }
    }
}

/* Word `word` of the mask of a prefix in a field of `width` bits. */
GL_INLINE uint64_t gl_prefix_mask(uint32_t length, uint32_t width, uint32_t word) {
    uint32_t low = width - length;
    return low <= 64 * word ? ~UINT64_C(0) : low >= 64 * word + 64 ? 0 : ~UINT64_C(0) << (low - 64 * word);
}

/* `key` has the field with the prefix in front of the last word, which is scratch. */
GL_INLINE gl_entry *gl_find_longest(const gl_table *table, uint64_t *key, uint32_t words, uint32_t width) {
    uint32_t held = (width + 63) / 64;
    uint64_t *prefix = key + words - 1 - held, value[held];
    for (uint32_t i = 0; i < held; i++) {
        value[i] = prefix[i];
    }
    for (uint32_t i = 0; i < table->length_count; i++) {
        uint32_t length = table->lengths[i];
        for (uint32_t j = 0; j < held; j++) {
            prefix[j] = value[j] & gl_prefix_mask(length, width, j);
        }
        key[words - 1] = length;
        gl_entry *entry = gl_find(table, key, words);
        if (entry) {
            return entry;
        }
    }
    return NULL;
}

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

/* The best of the rows that accept a key, among those that the index lets through. */
GL_INLINE gl_entry *gl_find_indexed(const gl_table *table, const uint64_t *key, uint32_t words, uint64_t ranges,
                                    uint64_t continued) {
    uint32_t lines[GL_INDEXED];
    for (uint32_t c = 0; c < table->shape.indexed; c++) {
        uint32_t byte = table->order[c], place = table->shape.bytes[byte];
        lines[c] = (byte * 256 + (uint32_t)(key[place / 8] >> 8 * (place % 8) & 0xff)) * GL_LINE;
    }
    const uint64_t *best = NULL;
    uint64_t rank = 0;
    for (uint32_t b = 0; b * GL_BLOCK < table->used; b++) {
        uint64_t set[GL_LINE], any = 1;
        for (uint32_t i = 0; i < GL_LINE; i++) {
            set[i] = table->blocks[b][lines[0] + i];
        }
        for (uint32_t c = 1; c < table->shape.indexed && any; c++) {
            const uint64_t *line = table->blocks[b] + lines[c];
            any = 0;
            for (uint32_t i = 0; i < GL_LINE; i++) {
                any |= set[i] &= line[i];
            }
        }
        for (uint32_t i = 0; any && i < GL_LINE; i++) {
            for (uint64_t rest = set[i]; rest; rest &= rest - 1) {
                uint32_t slot = b * GL_BLOCK + 64 * i + (uint32_t)__builtin_ctzll(rest);
                const uint64_t *row = table->rows + (size_t)slot * (1 + 2 * words);
                if (table->ranks[slot] >= rank && gl_accepts(row, key, words, ranges, continued)) {
                    best = row;
                    rank = table->ranks[slot];
                }
            }
        }
    }
    return best ? (gl_entry *)(uintptr_t)best[0] : NULL;
}

GL_INLINE gl_entry *gl_find_first(const gl_table *table, const uint64_t *key, uint32_t words, uint64_t ranges,
                                  uint64_t continued) {
    if (table->used > GL_SCAN) {
        return gl_find_indexed(table, key, words, ranges, continued);
    }
    const uint64_t *row = table->rows, *best = NULL;
    uint64_t rank = 0;
    for (uint32_t i = 0; i < table->used; i++, row += 1 + 2 * words) {
        if (gl_accepts(row, key, words, ranges, continued) && table->ranks[i] >= rank) {
            best = row;
            rank = table->ranks[i];
        }
    }
    return best ? (gl_entry *)(uintptr_t)best[0] : NULL;
}

void gl_table_free(gl_table *table);

#endif
