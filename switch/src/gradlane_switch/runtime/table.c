/* SPDX-License-Identifier: Apache-2.0
 * Match-action tables as the control plane changes them. There is one writer at a time: what packets do not see yet is
 * built without the lock. */
#include <stdlib.h>

#include "lock.h"
#include "runtime.h"

enum { FIRST_CAPACITY = 16 };

static gl_entry *new_entry(const gl_table *table) {
    return calloc(1, sizeof(gl_entry) + sizeof(uint64_t) * table->shape.argument_words);
}

int gl_state_table(gl_state *state, uint32_t index, const gl_table_shape *shape) {
    gl_table *table = &state->tables[index];
    table->shape = *shape;
    table->row_words = 1 + shape->words * (shape->kind == GL_TABLE_LIST ? 2 : 1);
    table->capacity = FIRST_CAPACITY;
    for (uint32_t i = 0; i < shape->indexed; i++) {
        table->order[i] = (uint16_t)i;
    }
    table->rows = calloc((size_t)table->capacity * table->row_words, sizeof(uint64_t));
    table->ranks = calloc(table->capacity, sizeof(uint64_t));
    table->fallback = new_entry(table);
    return table->rows && table->ranks && table->fallback ? 0 : -1;
}

static uint64_t *row_at(const gl_table *table, uint32_t i) {
    return table->rows + (size_t)i * table->row_words;
}

static gl_entry *entry_at(const gl_table *table, uint32_t i) {
    return (gl_entry *)(uintptr_t)row_at(table, i)[0];
}

static void free_entry(gl_entry *entry) {
    if (entry) {
        free(entry->meter);
        free(entry);
    }
}

void gl_table_free(gl_table *table) {
    uint32_t rows = table->shape.kind == GL_TABLE_LIST ? table->used : table->capacity;
    for (uint32_t i = 0; table->rows && i < rows; i++) {
        free_entry(entry_at(table, i));
    }
    for (uint32_t i = 0; i < table->block_count; i++) {
        free(table->blocks[i]);
    }
    free(table->blocks);
    free(table->rows);
    free(table->ranks);
    free_entry(table->fallback);
}

/* ---- Hash tables ---- */

static void place(gl_table *table, const uint64_t *row) {
    uint32_t mask = table->capacity - 1;
    uint32_t i = (uint32_t)gl_hash(row + 1, table->shape.words) & mask;
    while (row_at(table, i)[0]) {
        i = (i + 1) & mask;
    }
    memcpy(row_at(table, i), row, sizeof(uint64_t) * table->row_words);
}

/* Makes room for one row more, in a hash table by half, in a list by one. The larger table is filled without the lock,
 * which is only taken to put it in place. */
static int grow(gl_state *state, gl_table *table) {
    int hashed = table->shape.kind != GL_TABLE_LIST;
    if (hashed ? 2 * (table->used + 1) <= table->capacity : table->used < table->capacity) {
        return 0;
    }
    gl_table larger = *table;
    larger.capacity = 2 * table->capacity;
    larger.rows = calloc((size_t)larger.capacity * table->row_words, sizeof(uint64_t));
    larger.ranks = calloc(hashed ? 1 : larger.capacity, sizeof(uint64_t));
    if (!larger.rows || !larger.ranks) {
        free(larger.rows);
        free(larger.ranks);
        return -1;
    }
    for (uint32_t i = 0; hashed && i < table->capacity; i++) {
        const uint64_t *row = row_at(table, i);
        if (row[0]) {
            place(&larger, row);
        }
    }
    if (!hashed) {
        memcpy(larger.rows, table->rows, sizeof(uint64_t) * table->row_words * table->used);
        memcpy(larger.ranks, table->ranks, sizeof(uint64_t) * table->used);
    }
    uint64_t *rows = table->rows, *ranks = table->ranks;
    gl_acquire(state->lock);
    table->rows = larger.rows;
    table->ranks = larger.ranks;
    table->capacity = larger.capacity;
    gl_release(state->lock);
    free(rows);
    free(ranks);
    return 0;
}

/* Closes the gap at row i, so that no probe stops short. */
static void close_gap(gl_table *table, uint32_t i) {
    uint32_t mask = table->capacity - 1;
    for (uint32_t j = (i + 1) & mask; row_at(table, j)[0]; j = (j + 1) & mask) {
        uint32_t home = (uint32_t)gl_hash(row_at(table, j) + 1, table->shape.words) & mask;
        if (((j - home) & mask) >= ((j - i) & mask)) {
            memcpy(row_at(table, i), row_at(table, j), sizeof(uint64_t) * table->row_words);
            i = j;
        }
    }
    memset(row_at(table, i), 0, sizeof(uint64_t) * table->row_words);
}

/* Prefix lengths in use, longest first: adds one, or takes it out. */
static void count_prefix(gl_table *table, uint32_t length, int change) {
    uint32_t before = table->prefixes[length], i = 0;
    table->prefixes[length] += (uint32_t)change;
    while (i < table->length_count && table->lengths[i] > length) {
        i++;
    }
    uint16_t *at = table->lengths + i;
    uint32_t after = table->length_count - i;
    if (change > 0 && before == 0) {
        memmove(at + 1, at, sizeof *at * after);
        *at = (uint16_t)length;
        table->length_count++;
    } else if (change < 0 && before == 1) {
        memmove(at, at + 1, sizeof *at * (after - 1));
        table->length_count--;
    }
}

static void insert_hashed(gl_state *state, gl_table *table, gl_entry *entry, const uint64_t *key) {
    uint64_t row[table->row_words];
    row[0] = (uintptr_t)entry;
    memcpy(row + 1, key, sizeof(uint64_t) * table->shape.words);
    entry->place = gl_hash(row + 1, table->shape.words);
    gl_acquire(state->lock);
    if (table->shape.kind == GL_TABLE_LPM) {
        count_prefix(table, (uint32_t)row[table->shape.words], 1);
    }
    place(table, row);
    table->used++;
    gl_release(state->lock);
}

static void remove_hashed(gl_state *state, gl_table *table, const gl_entry *entry) {
    uint32_t mask = table->capacity - 1, i = (uint32_t)entry->place & mask;
    while (entry_at(table, i) != entry) {
        i = (i + 1) & mask;
    }
    gl_acquire(state->lock);
    if (table->shape.kind == GL_TABLE_LPM) {
        count_prefix(table, (uint32_t)row_at(table, i)[table->shape.words], -1);
    }
    close_gap(table, i);
    table->used--;
    gl_release(state->lock);
}

/* ---- Lists and their index ---- */

typedef struct {
    uint8_t mask, value;     /* byte & mask == value, and */
    uint8_t low, high;       /* low <= byte <= high */
} condition;

/* What a row wants of one byte of the key. Of a range only the first byte in which its ends differ, and those above,
 * can be told apart from the others. */
static condition condition_of(const gl_table *table, const uint64_t *row, uint32_t place) {
    uint32_t words = table->shape.words, word = place / 8, shift = 8 * (place % 8);
    const uint64_t *values = row + 1, *operands = values + words;
    uint8_t value = (uint8_t)(values[word] >> shift), operand = (uint8_t)(operands[word] >> shift);
    if (!(table->shape.ranges >> word & 1)) {
        return (condition){operand, value, 0, 255};
    }
    uint64_t differ = shift == 56 ? 0 : (values[word] ^ operands[word]) >> (shift + 8);
    for (uint32_t i = word + 1; i < words && (table->shape.continued >> i & 1); i++) {
        differ |= values[i] ^ operands[i];
    }
    return differ ? (condition){0, 0, 0, 255} : (condition){0, 0, value, operand};
}

/* Writes a row's bits into the index, or clears them. */
static void mark(gl_table *table, uint32_t slot, int present) {
    uint64_t *block = table->blocks[slot / GL_BLOCK], bit = UINT64_C(1) << slot % 64;
    uint32_t word = slot % GL_BLOCK / 64;
    for (uint32_t c = 0; c < table->shape.indexed; c++) {
        condition wanted = condition_of(table, row_at(table, slot), table->shape.bytes[c]);
        uint64_t *line = block + (size_t)c * 256 * GL_LINE + word;
        uint32_t accepted = 0;
        for (uint32_t value = wanted.low; value <= wanted.high; value++) {
            if ((value & wanted.mask) == wanted.value) {
                uint64_t *at = line + value * GL_LINE;
                *at = present ? *at | bit : *at & ~bit;
                accepted++;
            }
        }
        table->weights[c] += present ? accepted : -(uint64_t)accepted;
    }
}

static void sort_bytes(gl_table *table) {
    for (uint32_t i = 1; i < table->shape.indexed; i++) {
        uint16_t byte = table->order[i];
        uint32_t j = i;
        for (; j > 0 && table->weights[table->order[j - 1]] > table->weights[byte]; j--) {
            table->order[j] = table->order[j - 1];
        }
        table->order[j] = byte;
    }
}

/* Makes an index when there are enough rows, and a block more when the last is full. */
static int grow_index(gl_state *state, gl_table *table) {
    if (table->used < GL_SCAN || table->used < table->block_count * GL_BLOCK) {
        return 0;
    }
    uint64_t **blocks = calloc(table->block_count + 1, sizeof *blocks);
    size_t size = (size_t)table->shape.indexed * 256 * GL_LINE * sizeof(uint64_t);
    uint64_t *block = blocks ? aligned_alloc(64, size) : NULL;
    if (!block) {
        free(blocks);
        return -1;
    }
    memset(block, 0, size);
    uint64_t **old = table->blocks;
    if (old) {
        memcpy(blocks, old, sizeof *blocks * table->block_count);
    }
    blocks[table->block_count] = block;
    int first = table->block_count == 0;
    gl_acquire(state->lock);
    table->blocks = blocks;
    table->block_count++;
    gl_release(state->lock);
    free(old);
    /* Nobody looks into the first block before there are more than GL_SCAN rows. */
    for (uint32_t slot = 0; first && slot < table->used; slot++) {
        mark(table, slot, 1);
    }
    return 0;
}

static void insert_listed(gl_state *state, gl_table *table, gl_entry *entry, const uint64_t *key,
                          const uint64_t *operand) {
    uint32_t slot = table->used;
    entry->place = slot;
    gl_acquire(state->lock);
    uint64_t *row = row_at(table, slot);
    row[0] = (uintptr_t)entry;
    memcpy(row + 1, key, sizeof(uint64_t) * table->shape.words);
    memcpy(row + 1 + table->shape.words, operand, sizeof(uint64_t) * table->shape.words);
    /* Of entries with the same priority the oldest is the best. */
    table->ranks[slot] = (uint64_t)(uint32_t)entry->priority << 32 | (UINT32_MAX - table->sequence++);
    if (table->blocks) {
        mark(table, slot, 1);
        sort_bytes(table);
    }
    table->used++;
    gl_release(state->lock);
}

/* The last row takes the place of the one that goes. */
static void remove_listed(gl_state *state, gl_table *table, const gl_entry *entry) {
    uint32_t slot = (uint32_t)entry->place, last = table->used - 1;
    gl_acquire(state->lock);
    if (table->blocks) {
        mark(table, slot, 0);
        if (slot != last) {
            mark(table, last, 0);
        }
    }
    if (slot != last) {
        memcpy(row_at(table, slot), row_at(table, last), sizeof(uint64_t) * table->row_words);
        table->ranks[slot] = table->ranks[last];
        entry_at(table, slot)->place = slot;
        if (table->blocks) {
            mark(table, slot, 1);
        }
    }
    sort_bytes(table);
    table->used--;
    gl_release(state->lock);
}

/* ---- Entries ---- */

static void set_action(gl_entry *entry, uint32_t action, uint32_t arguments, const uint64_t *values,
                       gl_choice *choice) {
    entry->action = action;
    entry->choice = choice;
    if (arguments) {
        memcpy(entry->arguments, values, sizeof(uint64_t) * arguments);
    }
}

gl_entry *gl_table_insert(gl_state *state, uint32_t index, const uint64_t *key, const uint64_t *operand,
                          int32_t priority, uint32_t action, uint32_t arguments, const uint64_t *values,
                          gl_choice *choice) {
    gl_table *table = &state->tables[index];
    int listed = table->shape.kind == GL_TABLE_LIST;
    gl_entry *entry = new_entry(table);
    if (!entry) {
        return NULL;
    }
    entry->priority = priority;
    set_action(entry, action, arguments, values, choice);
    if (grow(state, table) || (listed && grow_index(state, table))) {
        free(entry);
        return NULL;
    }
    if (listed) {
        insert_listed(state, table, entry, key, operand);
    } else {
        insert_hashed(state, table, entry, key);
    }
    return entry;
}

void gl_entry_set(gl_state *state, gl_entry *entry, uint32_t action, uint32_t arguments,
                  const uint64_t *values, gl_choice *choice) {
    gl_acquire(state->lock);
    set_action(entry, action, arguments, values, choice);
    gl_release(state->lock);
}

void gl_table_remove(gl_state *state, uint32_t index, gl_entry *entry) {
    gl_table *table = &state->tables[index];
    if (table->shape.kind == GL_TABLE_LIST) {
        remove_listed(state, table, entry);
    } else {
        remove_hashed(state, table, entry);
    }
    free_entry(entry);
}

gl_entry *gl_table_default(gl_state *state, uint32_t index) {
    return state->tables[index].fallback;
}
