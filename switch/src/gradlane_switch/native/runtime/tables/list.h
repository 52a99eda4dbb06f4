/* SPDX-License-Identifier: Apache-2.0
 * Ternary, range and optional keys: rows that are looked through, with an index of bits once they are many. */
#ifndef GL_LIST_H
#define GL_LIST_H

#include <stdint.h>
#include <string.h>

#include "base/inline.h"
#include "base/lock.h"
#include "tables/api.h"

enum {
    GL_SCAN = 16,           /* rows that are looked through without an index */
    GL_PIECE_MASK = (1 << GL_PIECE) - 1
};

/* Rows are (entry, key words, operand words), from `first` to the end; where an entry was removed it is NULL. The
 * higher its rank, the better a row is. */
typedef struct {
    uint64_t *rows, *ranks;
    uint32_t capacity;       /* rows */
    uint32_t first, live;
    uint32_t groups;         /* of 64 rows; a multiple of 8 */
    uint32_t spans;          /* words with a bit for each group */
    uint32_t useful;         /* how many indexed pieces some row does not accept every value of */
    uint64_t *accepts;       /* the index, see below; NULL: none */
    uint64_t *summary;
    uint64_t *best;          /* by group: no rank in it or in a later one is higher */
    uint32_t row_words;
    uint32_t sequence;       /* of the next entry */
    uint64_t weights[GL_INDEXED];  /* values of each indexed piece that rows accept, in all */
    uint16_t order[GL_INDEXED];    /* indexed pieces, those that accept least first */
    uint32_t words;                /* of a key */
    uint32_t indexed;              /* pieces of it that the index knows: */
    uint16_t pieces[GL_INDEXED];   /* those, counted from the lowest bits of the first word */
    uint32_t first_range;          /* as in gl_accepts */
    uint64_t continued;
} gl_list;

void gl_list_init(gl_list *list, const gl_table_shape *shape);
/* Makes room for `count` entries more, so that adding them is short and can't fail. Returns 0, or -1 for want of
 * memory. The caller does not hold the lock. */
int gl_list_reserve(gl_list *list, gl_lock *lock, uint32_t count);
/* These are called with the lock. A key has its operands behind it. An entry's place is its row. */
void gl_list_add(gl_list *list, const uint64_t *key, gl_entry *entry);
void gl_list_remove(gl_list *list, gl_entry *entry);
void gl_list_free(gl_list *list);

/* Whether a list's row accepts a key. Words from `first_range` on are ranges (value <= key <= operand), those before are
 * masks (key & operand == value). Bit i of `continued`: the i-th of those words is the same range as the one below. */
GL_INLINE int gl_accepts(const uint64_t *row, const uint64_t *key, uint32_t words, uint32_t first_range,
                         uint64_t continued) {
    int matches = 1, above = 1, below = 1;
    for (uint32_t i = 0; i < first_range; i++) {
        matches &= (key[i] & row[1 + words + i]) == row[1 + i];
    }
    for (uint32_t i = first_range; i < words; i++, continued >>= 1) {
        uint64_t value = row[1 + i], operand = row[1 + words + i];
        int first = !(continued & 1);
        above = value < key[i] || (value == key[i] && (first || above));
        below = key[i] < operand || (key[i] == operand && (first || below));
        if (!(continued & 2)) {
            matches &= above & below;
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
GL_INLINE gl_entry *gl_list_find_indexed(const gl_list *list, const uint64_t *key, uint32_t words, uint32_t first_range,
                                         uint64_t continued) {
    uint32_t lines[GL_INDEXED], useful = list->useful, groups = list->groups, spans = list->spans;
    for (uint32_t c = 0; c < useful; c++) {
        uint32_t piece = list->order[c], low = GL_PIECE * list->pieces[piece];
        lines[c] = piece << GL_PIECE | (key[low / 64] >> low % 64 & GL_PIECE_MASK);
    }
    const uint64_t *best = NULL;
    uint64_t rank = 0;
    for (uint32_t span = 0; span < spans; span++) {
        uint64_t left = ~UINT64_C(0);
        for (uint32_t c = 0; c < useful && left; c++) {
            left &= list->summary[(size_t)lines[c] * spans + span];
        }
        while (left) {
            uint32_t eight = (uint32_t)__builtin_ctzll(left) / 8, group = 64 * span + 8 * eight;
            left &= ~(UINT64_C(0xff) << 8 * eight);
            if (group >= groups || list->best[group] < rank) {
                break;
            }
            const gl_two all = ~(gl_two){0};
            gl_eight set = {all, all, all, all};
            int any = 1;
            for (uint32_t c = 0; c < useful && any; c++) {
                any = gl_meet(&set, (const gl_eight *)(list->accepts + (size_t)lines[c] * groups + group));
            }
            if (!any) {
                continue;
            }
            uint64_t bits[8];
            memcpy(bits, &set, sizeof bits);
            for (uint32_t i = 0; i < 8; i++) {
                for (uint64_t rest = bits[i]; rest && list->best[group + i] > rank; rest &= rest - 1) {
                    uint32_t slot = 64 * (group + i) + (uint32_t)__builtin_ctzll(rest);
                    const uint64_t *row = list->rows + (size_t)slot * (1 + 2 * words);
                    if (row[0] && list->ranks[slot] > rank && gl_accepts(row, key, words, first_range, continued)) {
                        best = row;
                        rank = list->ranks[slot];
                    }
                }
            }
        }
    }
    return best ? (gl_entry *)(uintptr_t)best[0] : NULL;
}

GL_INLINE gl_entry *gl_list_find(const gl_list *list, const uint64_t *key, uint32_t words, uint32_t first_range,
                                 uint64_t continued) {
    if (list->accepts) {
        return gl_list_find_indexed(list, key, words, first_range, continued);
    }
    const uint64_t *best = NULL;
    uint64_t rank = 0;
    for (uint32_t i = list->first; i < list->capacity; i++) {
        const uint64_t *row = list->rows + (size_t)i * (1 + 2 * words);
        if (row[0] && list->ranks[i] > rank && gl_accepts(row, key, words, first_range, continued)) {
            best = row;
            rank = list->ranks[i];
        }
    }
    return best ? (gl_entry *)(uintptr_t)best[0] : NULL;
}

#endif
