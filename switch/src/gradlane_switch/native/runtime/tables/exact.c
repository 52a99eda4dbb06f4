/* SPDX-License-Identifier: Apache-2.0
 * Exact tables: a hash table of addresses of entries. */
#include "base/lock.h"
#include "program/program.h"

enum { FIRST_CAPACITY = 16 };

static gl_entry *entry_at(const gl_table *table, uint32_t i) {
    return (gl_entry *)(uintptr_t)(table->slots[i] & GL_ADDRESS);
}

static uint64_t hash_of(const gl_table *table, gl_entry *entry) {
    return gl_hash(gl_key_of(table, entry), table->shape.words);
}

static void place(gl_table *table, gl_entry *entry) {
    uint64_t hash = hash_of(table, entry);
    uint32_t mask = table->capacity - 1, i = (uint32_t)hash & mask;
    while (table->slots[i]) {
        i = (i + 1) & mask;
    }
    table->slots[i] = (hash & ~GL_ADDRESS) | (uintptr_t)entry;
}

int gl_exact_reserve(gl_state *state, gl_table *table, uint32_t count) {
    if (2 * ((uint64_t)table->used + count) <= table->capacity) {
        return 0;
    }
    gl_table larger = *table;
    larger.capacity = table->capacity ? 2 * table->capacity : FIRST_CAPACITY;
    while (2 * ((uint64_t)table->used + count) > larger.capacity) {
        larger.capacity *= 2;
    }
    larger.slots = gl_memory_new(sizeof *larger.slots * larger.capacity);
    if (!larger.slots) {
        return -1;
    }
    for (uint32_t i = 0; i < table->capacity; i++) {
        if (table->slots[i]) {
            place(&larger, entry_at(table, i));
        }
    }
    gl_acquire(state->lock);
    uint64_t *old = table->slots;
    size_t size = sizeof *old * table->capacity;
    table->slots = larger.slots;
    table->capacity = larger.capacity;
    gl_release(state->lock);
    gl_memory_free(old, size);
    return 0;
}

void gl_exact_add(gl_table *table, gl_entry *entry) {
    place(table, entry);
    table->used++;
}

void gl_exact_remove(gl_table *table, gl_entry *entry) {
    uint32_t mask = table->capacity - 1, i = (uint32_t)hash_of(table, entry) & mask;
    while (entry_at(table, i) != entry) {
        i = (i + 1) & mask;
    }
    /* Closes the gap, so that no probe stops short. */
    for (uint32_t j = (i + 1) & mask; table->slots[j]; j = (j + 1) & mask) {
        uint32_t home = (uint32_t)hash_of(table, entry_at(table, j)) & mask;
        if (((j - home) & mask) >= ((j - i) & mask)) {
            table->slots[i] = table->slots[j];
            i = j;
        }
    }
    table->slots[i] = 0;
    table->used--;
}
