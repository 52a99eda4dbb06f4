/* SPDX-License-Identifier: Apache-2.0
 * Tables with ternary, range or optional keys: rows, and an index of bits once they are many; see gl_find_indexed.
 *
 * New rows go in front of the others. When there is no room left, the rows move to larger arrays, sorted, and without
 * those that were removed. */
#include <stdlib.h>

#include "base/lock.h"
#include "program/program.h"

enum { GROUP = 64, ROUND = 8 * GROUP, VALUES = 1 << GL_PIECE };

static uint64_t *row_at(const gl_table *table, uint32_t i) {
    return table->rows + (size_t)i * table->row_words;
}

/* ---- What a row accepts of a piece of the key ---- */

typedef struct {
    uint8_t mask, value;     /* piece & mask == value, and */
    uint8_t low, high;       /* low <= piece <= high */
} condition;

/* Of a range only the highest piece in which its ends differ, and those above, can be told apart from the others. */
static condition condition_of(const gl_table *table, const uint64_t *row, uint32_t piece) {
    uint32_t place = GL_PIECE * table->shape.pieces[piece], words = table->shape.words;
    uint32_t word = place / 64, shift = place % 64;
    const uint64_t *values = row + 1, *operands = values + words;
    uint8_t value = values[word] >> shift & GL_PIECE_MASK, operand = operands[word] >> shift & GL_PIECE_MASK;
    if (!(table->shape.ranges >> word & 1)) {
        return (condition){operand, value, 0, GL_PIECE_MASK};
    }
    uint64_t differ = shift + GL_PIECE == 64 ? 0 : (values[word] ^ operands[word]) >> (shift + GL_PIECE);
    for (uint32_t i = word + 1; i < words && (table->shape.continued >> i & 1); i++) {
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
static void mark(gl_table *table, uint32_t slot, int present) {
    uint32_t group = slot / GROUP;
    uint64_t bit = UINT64_C(1) << slot % GROUP, group_bit = UINT64_C(1) << group % 64;
    for (uint32_t piece = 0; piece < table->shape.indexed; piece++) {
        condition wanted = condition_of(table, row_at(table, slot), piece);
        for (uint32_t value = first(wanted); value <= wanted.high; value = after(wanted, value)) {
            uint64_t *at = line_of(table->accepts, table->groups, piece, value) + group;
            if (!present) {
                *at &= ~bit;
                continue;
            }
            if (!*at) {
                line_of(table->summary, table->spans, piece, value)[group / 64] |= group_bit;
            }
            *at |= bit;
        }
        table->weights[piece] += present ? accepted(wanted) : -(uint64_t)accepted(wanted);
    }
}

/* The same for all rows of a group that has none in the index yet. */
static void mark_group(gl_table *table, uint32_t group) {
    uint64_t group_bit = UINT64_C(1) << group % 64;
    for (uint32_t piece = 0; piece < table->shape.indexed; piece++) {
        uint64_t bits[VALUES] = {0}, everything = 0;
        for (uint32_t i = 0; i < GROUP; i++) {
            const uint64_t *row = row_at(table, group * GROUP + i);
            uint64_t bit = UINT64_C(1) << i;
            if (!row[0]) {
                continue;
            }
            condition wanted = condition_of(table, row, piece);
            table->weights[piece] += accepted(wanted);
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
                line_of(table->accepts, table->groups, piece, value)[group] = set;
                line_of(table->summary, table->spans, piece, value)[group / 64] |= group_bit;
            }
        }
    }
}

static void sort_pieces(gl_table *table) {
    uint32_t indexed = table->shape.indexed;
    for (uint32_t i = 1; i < indexed; i++) {
        uint16_t piece = table->order[i];
        uint32_t j = i;
        for (; j > 0 && table->weights[table->order[j - 1]] > table->weights[piece]; j--) {
            table->order[j] = table->order[j - 1];
        }
        table->order[j] = piece;
    }
    table->useful = 0;
    while (table->useful < indexed && table->weights[table->order[table->useful]] < (uint64_t)VALUES * table->live) {
        table->useful++;
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

static int by_rank(const void *a, const void *b, void *table) {
    (void)table;
    return compare(((const ranked *)b)->rank, ((const ranked *)a)->rank);
}

/* Rows with the same masks are together, and among them those with similar values. */
static int by_likeness(const void *a, const void *b, void *context) {
    const gl_table *table = context;
    const uint64_t *one = ((const ranked *)a)->row + 1, *other = ((const ranked *)b)->row + 1;
    uint32_t words = table->shape.words;
    int order = 0;
    for (uint32_t i = words; !order && i-- > 0;) {
        order = table->shape.ranges >> i & 1 ? 0 : compare(one[words + i], other[words + i]);
    }
    for (uint32_t i = words; !order && i-- > 0;) {
        order = compare(one[i], other[i]);
    }
    return order;
}

/* How many rows a random key has, about, that accept all of its pieces. */
static double overlap(const gl_table *table) {
    double rows = 0;
    for (uint32_t i = table->first; i < table->capacity; i++) {
        const uint64_t *row = row_at(table, i);
        double share = row[0] ? 1 : 0;
        for (uint32_t piece = 0; share > 0 && piece < table->shape.indexed; piece++) {
            share *= (double)accepted(condition_of(table, row, piece)) / VALUES;
        }
        rows += share;
    }
    return rows;
}

/* The rows that are left, in the order in which packets are to meet them. Where most groups have a row for every key, the
 * best come first, and a lookup ends with the first groups; elsewhere likeness keeps it from looking into many. */
static void collect(gl_table *table, ranked *rows) {
    uint32_t count = 0;
    for (uint32_t i = table->first; i < table->capacity; i++) {
        if (row_at(table, i)[0]) {
            rows[count++] = (ranked){row_at(table, i), table->ranks[i]};
        }
    }
    int overlapping = overlap(table) > (double)count / GROUP;
    qsort_r(rows, count, sizeof *rows, overlapping ? by_rank : by_likeness, table);
}

/* ---- Growth ---- */

static size_t index_words(const gl_table *table, uint32_t words) {
    return (size_t)table->shape.indexed * VALUES * words;
}

static void free_rows(gl_table *table) {
    gl_memory_free(table->rows, sizeof(uint64_t) * table->row_words * table->capacity);
    gl_memory_free(table->ranks, sizeof(uint64_t) * table->capacity);
    gl_memory_free(table->accepts, sizeof(uint64_t) * index_words(table, table->groups));
    gl_memory_free(table->summary, sizeof(uint64_t) * index_words(table, table->spans));
    gl_memory_free(table->best, sizeof(uint64_t) * table->groups);
}

void gl_list_free(gl_table *table) {
    if (table->rows) {
        free_rows(table);
    }
}

/* Larger arrays, without rows and, up to GL_SCAN rows, without an index. Returns 0, or -1 for want of memory. */
static int allocate(gl_table *table, uint32_t capacity) {
    table->first = table->capacity = capacity;
    table->groups = capacity > GL_SCAN ? capacity / GROUP : 0;
    table->spans = (table->groups + 63) / 64;
    table->accepts = table->summary = table->best = NULL;
    table->rows = gl_memory_new(sizeof(uint64_t) * table->row_words * capacity);
    table->ranks = gl_memory_new(sizeof(uint64_t) * capacity);
    int complete = table->rows && table->ranks;
    if (table->groups) {
        table->accepts = gl_memory_new(sizeof(uint64_t) * index_words(table, table->groups));
        table->summary = gl_memory_new(sizeof(uint64_t) * index_words(table, table->spans));
        table->best = gl_memory_new(sizeof(uint64_t) * table->groups);
        complete = complete && table->accepts && table->summary && table->best;
    }
    if (!complete) {
        free_rows(table);
        return -1;
    }
    return 0;
}

int gl_list_reserve(gl_state *state, gl_table *table, uint32_t count) {
    if (table->first >= count && table->rows) {
        return 0;
    }
    gl_table larger = *table;
    uint32_t wanted = table->live + table->live / 16 + count;
    ranked *rows = malloc(sizeof *rows * (table->live + 1));
    if (!rows || allocate(&larger, wanted <= GL_SCAN ? GL_SCAN : (wanted + ROUND - 1) / ROUND * ROUND)) {
        free(rows);
        return -1;
    }
    collect(table, rows);
    memset(larger.weights, 0, sizeof larger.weights);
    larger.first -= table->live;
    for (uint32_t i = 0; i < table->live; i++) {
        memcpy(row_at(&larger, larger.first + i), rows[i].row, sizeof(uint64_t) * table->row_words);
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
    gl_table old = *table;
    gl_acquire(state->lock);
    *table = larger;
    gl_release(state->lock);
    gl_list_free(&old);
    return 0;
}

/* ---- Changes ---- */

void gl_list_add(gl_table *table, gl_entry *entry) {
    uint32_t slot = --table->first;
    uint64_t *row = row_at(table, slot);
    row[0] = (uintptr_t)entry;
    memcpy(row + 1, gl_key_of(table, entry), sizeof(uint64_t) * (table->row_words - 1));
    /* Of entries with the same priority the oldest is the best. */
    uint64_t rank = (uint64_t)(uint32_t)entry->priority << 32 | (UINT32_MAX - table->sequence++);
    table->ranks[slot] = rank;
    table->live++;
    entry->place = slot;
    if (table->accepts) {
        mark(table, slot, 1);
        sort_pieces(table);
        uint32_t group = slot / GROUP;
        uint64_t later = group + 1 < table->groups ? table->best[group + 1] : 0;
        uint64_t highest = table->best[group] > later ? table->best[group] : later;
        table->best[group] = rank > highest ? rank : highest;
    }
}

void gl_list_remove(gl_table *table, gl_entry *entry) {
    uint32_t slot = (uint32_t)entry->place;
    row_at(table, slot)[0] = 0;
    table->live--;
    if (table->accepts) {
        mark(table, slot, 0);
        sort_pieces(table);
    }
}
