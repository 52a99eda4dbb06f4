/* SPDX-License-Identifier: Apache-2.0
 * The rows and their index as the control plane changes them; see gl_list_find_indexed.
 *
 * New rows go in front of the others. When there is no room left, the rows move to larger arrays, sorted, and without
 * those that were removed. */
#include "tables/list.h"

#include <stdlib.h>

#include "base/bits.h"
#include "base/memory.h"

enum { GROUP = 64, ROUND = 8 * GROUP, VALUES = 1 << GL_PIECE };

static uint64_t *row_at(const gl_list *list, uint32_t i) {
    return list->rows + (size_t)i * list->row_words;
}

void gl_list_init(gl_list *list, const gl_table_shape *shape) {
    *list = (gl_list){
        .row_words = 1 + 2 * shape->words, .words = shape->words, .indexed = shape->indexed,
        .first_range = shape->first_range, .continued = shape->continued,
    };
    memcpy(list->pieces, shape->pieces, sizeof list->pieces);
    for (uint32_t i = 0; i < list->indexed; i++) {
        list->order[i] = (uint16_t)i;
    }
}

/* ---- What a row accepts of a piece of the key ---- */

typedef struct {
    uint8_t mask, value;     /* piece & mask == value, and */
    uint8_t low, high;       /* low <= piece <= high */
} condition;

/* Of a range only the highest piece in which its ends differ, and those above, can be told apart from the others. */
static condition condition_of(const gl_list *list, const uint64_t *row, uint32_t piece) {
    uint32_t place = GL_PIECE * list->pieces[piece], words = list->words;
    uint32_t word = place / 64, shift = place % 64;
    const uint64_t *values = row + 1, *operands = values + words;
    uint8_t value = values[word] >> shift & GL_PIECE_MASK, operand = operands[word] >> shift & GL_PIECE_MASK;
    if (word < list->first_range) {
        return (condition){operand, value, 0, GL_PIECE_MASK};
    }
    uint64_t differ = shift + GL_PIECE == 64 ? 0 : (values[word] ^ operands[word]) >> (shift + GL_PIECE);
    for (uint64_t i = word + 1, higher = list->continued >> (word - list->first_range) >> 1; higher & 1; higher >>= 1, i++) {
        differ |= values[i] ^ operands[i];
    }
    return differ ? (condition){0, 0, 0, GL_PIECE_MASK} : (condition){0, 0, value, operand};
}

/* for (v = first(c); v <= c.high; v = after(c, v)) */
static uint32_t first(condition wanted) {
    return wanted.mask ? wanted.value : wanted.low;
}

static uint32_t after(condition wanted, uint32_t value) {
    uint32_t mask = wanted.mask;
    return (((value | mask) + 1) & ~mask) | wanted.value;
}

/* How many values that is. */
static uint32_t accepted(condition wanted) {
    if (wanted.mask) {
        return VALUES >> gl_population(wanted.mask);
    }
    return 1u + wanted.high - wanted.low;
}

/* ---- The index ---- */

static uint64_t *line_of(uint64_t *lines, uint32_t words, uint32_t piece, uint32_t value) {
    return lines + ((size_t)piece * VALUES + value) * words;
}

/* Writes a row's bits into the index, or clears them. A summary keeps its bits until the next rebuild. */
static void mark(gl_list *list, uint32_t slot, int present) {
    uint32_t group = slot / GROUP;
    uint64_t bit = UINT64_C(1) << slot % GROUP, group_bit = UINT64_C(1) << group % 64;
    for (uint32_t piece = 0; piece < list->indexed; piece++) {
        condition wanted = condition_of(list, row_at(list, slot), piece);
        for (uint32_t value = first(wanted); value <= wanted.high; value = after(wanted, value)) {
            uint64_t *at = line_of(list->accepts, list->groups, piece, value) + group;
            if (!present) {
                *at &= ~bit;
                continue;
            }
            if (!*at) {
                line_of(list->summary, list->spans, piece, value)[group / 64] |= group_bit;
            }
            *at |= bit;
        }
        list->weights[piece] += present ? accepted(wanted) : -(uint64_t)accepted(wanted);
    }
}

/* The same for all rows of a group that has none in the index yet. */
static void mark_group(gl_list *list, uint32_t group) {
    uint64_t group_bit = UINT64_C(1) << group % 64;
    for (uint32_t piece = 0; piece < list->indexed; piece++) {
        uint64_t bits[VALUES] = {0}, everything = 0;
        for (uint32_t i = 0; i < GROUP; i++) {
            const uint64_t *row = row_at(list, group * GROUP + i);
            uint64_t bit = UINT64_C(1) << i;
            if (!row[0]) {
                continue;
            }
            condition wanted = condition_of(list, row, piece);
            list->weights[piece] += accepted(wanted);
            if (accepted(wanted) == VALUES) {
                everything |= bit;
            } else {
                for (uint32_t value = first(wanted); value <= wanted.high; value = after(wanted, value)) {
                    bits[value] |= bit;
                }
            }
        }
        for (uint32_t value = 0; value < VALUES; value++) {
            uint64_t set = bits[value] | everything;
            if (set) {
                line_of(list->accepts, list->groups, piece, value)[group] = set;
                line_of(list->summary, list->spans, piece, value)[group / 64] |= group_bit;
            }
        }
    }
}

static void sort_pieces(gl_list *list) {
    uint32_t indexed = list->indexed;
    for (uint32_t i = 1; i < indexed; i++) {
        uint16_t piece = list->order[i];
        uint32_t j = i;
        for (; j > 0 && list->weights[list->order[j - 1]] > list->weights[piece]; j--) {
            list->order[j] = list->order[j - 1];
        }
        list->order[j] = piece;
    }
    list->useful = 0;
    while (list->useful < indexed && list->weights[list->order[list->useful]] < (uint64_t)VALUES * list->live) {
        list->useful++;
    }
}

/* ---- Order ---- */

typedef struct {
    const uint64_t *row;
    uint64_t rank;
} ranked;

static int compare(uint64_t a, uint64_t b) {
    return a < b ? -1 : a > b;
}

static int by_rank(const void *a, const void *b, void *context) {
    (void)context;
    return compare(((const ranked *)b)->rank, ((const ranked *)a)->rank);
}

/* Rows with the same masks are together, and among them those with similar values. */
static int by_likeness(const void *a, const void *b, void *context) {
    const gl_list *list = context;
    const uint64_t *one = ((const ranked *)a)->row + 1, *other = ((const ranked *)b)->row + 1;
    uint32_t words = list->words;
    int order = 0;
    for (uint32_t i = words; !order && i-- > 0;) {
        order = i < list->first_range ? compare(one[words + i], other[words + i]) : 0;
    }
    for (uint32_t i = words; !order && i-- > 0;) {
        order = compare(one[i], other[i]);
    }
    return order;
}

/* How many rows a random key has, about, that accept all of its pieces. */
static double overlap(const gl_list *list) {
    double rows = 0;
    for (uint32_t i = list->first; i < list->capacity; i++) {
        const uint64_t *row = row_at(list, i);
        double share = row[0] ? 1 : 0;
        for (uint32_t piece = 0; share > 0 && piece < list->indexed; piece++) {
            share *= (double)accepted(condition_of(list, row, piece)) / VALUES;
        }
        rows += share;
    }
    return rows;
}

/* The rows that are left, in the order in which packets are to meet them. Where most groups have a row for every key, the
 * best come first, and a lookup ends with the first groups; elsewhere likeness keeps it from looking into many. */
static void collect(gl_list *list, ranked *rows) {
    uint32_t count = 0;
    for (uint32_t i = list->first; i < list->capacity; i++) {
        if (row_at(list, i)[0]) {
            rows[count++] = (ranked){row_at(list, i), list->ranks[i]};
        }
    }
    int overlapping = overlap(list) > (double)count / GROUP;
    qsort_r(rows, count, sizeof *rows, overlapping ? by_rank : by_likeness, list);
}

/* ---- Growth ---- */

static size_t index_words(const gl_list *list, uint32_t words) {
    return (size_t)list->indexed * VALUES * words;
}

static void free_rows(gl_list *list) {
    gl_memory_free(list->rows, sizeof(uint64_t) * list->row_words * list->capacity);
    gl_memory_free(list->ranks, sizeof(uint64_t) * list->capacity);
    gl_memory_free(list->accepts, sizeof(uint64_t) * index_words(list, list->groups));
    gl_memory_free(list->summary, sizeof(uint64_t) * index_words(list, list->spans));
    gl_memory_free(list->best, sizeof(uint64_t) * list->groups);
}

void gl_list_free(gl_list *list) {
    if (list->rows) {
        free_rows(list);
    }
}

/* Larger arrays, without rows and, up to GL_SCAN rows, without an index. Returns 0, or -1 for want of memory. */
static int allocate(gl_list *list, uint32_t capacity) {
    list->first = list->capacity = capacity;
    list->groups = capacity > GL_SCAN ? capacity / GROUP : 0;
    list->spans = (list->groups + 63) / 64;
    list->accepts = list->summary = list->best = NULL;
    list->rows = gl_memory_new(sizeof(uint64_t) * list->row_words * capacity);
    list->ranks = gl_memory_new(sizeof(uint64_t) * capacity);
    int complete = list->rows && list->ranks;
    if (list->groups) {
        list->accepts = gl_memory_new(sizeof(uint64_t) * index_words(list, list->groups));
        list->summary = gl_memory_new(sizeof(uint64_t) * index_words(list, list->spans));
        list->best = gl_memory_new(sizeof(uint64_t) * list->groups);
        complete = complete && list->accepts && list->summary && list->best;
    }
    if (!complete) {
        free_rows(list);
        return -1;
    }
    return 0;
}

int gl_list_reserve(gl_list *list, gl_lock *lock, uint32_t count) {
    if (list->first >= count && list->rows) {
        return 0;
    }
    gl_list larger = *list;
    uint32_t wanted = list->live + list->live / 16 + count;
    ranked *rows = malloc(sizeof *rows * (list->live + 1));
    if (!rows || allocate(&larger, wanted <= GL_SCAN ? GL_SCAN : (wanted + ROUND - 1) / ROUND * ROUND)) {
        free(rows);
        return -1;
    }
    collect(list, rows);
    memset(larger.weights, 0, sizeof larger.weights);
    larger.first -= list->live;
    for (uint32_t i = 0; i < list->live; i++) {
        memcpy(row_at(&larger, larger.first + i), rows[i].row, sizeof(uint64_t) * list->row_words);
        larger.ranks[larger.first + i] = rows[i].rank;
    }
    free(rows);
    uint64_t highest = 0;
    for (uint32_t group = larger.groups; group-- > 0;) {
        for (uint32_t i = group * GROUP; i < (group + 1) * GROUP; i++) {
            highest = larger.ranks[i] > highest ? larger.ranks[i] : highest;
        }
        larger.best[group] = highest;
        if ((group + 1) * GROUP > larger.first) {
            mark_group(&larger, group);
        }
    }
    sort_pieces(&larger);
    for (uint32_t i = larger.first; i < larger.capacity; i++) {
        ((gl_entry *)(uintptr_t)row_at(&larger, i)[0])->place = i;
    }
    gl_list old = *list;
    gl_acquire(lock);
    *list = larger;
    gl_release(lock);
    gl_list_free(&old);
    return 0;
}

/* ---- Changes ---- */

void gl_list_add(gl_list *list, const uint64_t *key, gl_entry *entry) {
    uint32_t slot = --list->first;
    uint64_t *row = row_at(list, slot);
    row[0] = (uintptr_t)entry;
    memcpy(row + 1, key, sizeof(uint64_t) * (list->row_words - 1));
    /* Of entries with the same priority the oldest is the best. */
    uint64_t rank = (uint64_t)(uint32_t)entry->priority << 32 | (UINT32_MAX - list->sequence++);
    list->ranks[slot] = rank;
    list->live++;
    entry->place = slot;
    if (list->accepts) {
        mark(list, slot, 1);
        sort_pieces(list);
        uint32_t group = slot / GROUP;
        uint64_t later = group + 1 < list->groups ? list->best[group + 1] : 0;
        uint64_t highest = list->best[group] > later ? list->best[group] : later;
        list->best[group] = rank > highest ? rank : highest;
    }
}

void gl_list_remove(gl_list *list, gl_entry *entry) {
    uint32_t slot = (uint32_t)entry->place;
    row_at(list, slot)[0] = 0;
    list->live--;
    if (list->accepts) {
        mark(list, slot, 0);
        sort_pieces(list);
    }
}
