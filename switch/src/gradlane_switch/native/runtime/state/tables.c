/* SPDX-License-Identifier: Apache-2.0
 * Match-action tables as the control plane changes them. There is one writer at a time: what packets do not see yet is
 * built without the lock. */
#include <string.h>

#include "state/state.h"

enum { METER_LINES = (sizeof(gl_meter) + GL_CACHE_LINE - 1) / GL_CACHE_LINE };

static size_t entry_size(const gl_table_shape *shape) {
    uint32_t key = shape->words * (shape->kind == GL_TABLE_LIST ? 2 : 1);
    return sizeof(gl_entry) + sizeof(uint64_t) * (shape->argument_words + key);
}

static uint32_t entry_lines(const gl_table *table) {
    return gl_lines(entry_size(&table->shape));
}

int gl_state_table(gl_state *state, uint32_t index, const gl_table_shape *shape) {
    gl_table *table = &state->tables[index];
    table->shape = *shape;
    gl_lookup_init(&table->lookup, shape, &table->blocks);
    uint32_t lines = entry_lines(table);
    if (gl_blocks_init(&table->blocks, lines < 64 ? 64 : lines)) {
        return -1;
    }
    table->fallback = gl_block_get(&table->blocks, lines);
    return table->fallback ? gl_table_reserve(state, index, 1) : -1;
}

static void set_action(gl_entry *entry, uint32_t action, uint32_t arguments, const uint64_t *values,
                       gl_choice *choice) {
    entry->action = action;
    entry->choice = choice;
    if (arguments) {
        memcpy(entry->arguments, values, sizeof(uint64_t) * arguments);
    }
}

gl_entry *gl_entry_new(gl_state *state, uint32_t index, const uint64_t *key, const uint64_t *operand, int32_t priority,
                       uint32_t action, uint32_t arguments, const uint64_t *values, gl_choice *choice) {
    gl_table *table = &state->tables[index];
    uint32_t words = table->shape.words;
    gl_entry *entry = gl_block_get(&table->blocks, entry_lines(table));
    if (!entry) {
        return NULL;
    }
    if (table->shape.metered) {
        entry->meter = gl_block_get(&table->blocks, METER_LINES);
        if (!entry->meter) {
            gl_block_put(&table->blocks, entry, entry_lines(table));
            return NULL;
        }
    }
    entry->priority = priority;
    entry->place = GL_NOWHERE;
    memcpy(gl_key_of(table, entry), key, sizeof *key * words);
    if (table->shape.kind == GL_TABLE_LIST) {
        memcpy(gl_key_of(table, entry) + words, operand, sizeof *operand * words);
    }
    set_action(entry, action, arguments, values, choice);
    return entry;
}

int gl_table_reserve(gl_state *state, uint32_t index, uint32_t count) {
    return gl_lookup_reserve(&state->tables[index].lookup, state->lock, count);
}

int gl_table_add(gl_state *state, uint32_t index, gl_entry *entry) {
    gl_table *table = &state->tables[index];
    if (gl_table_reserve(state, index, 1)) {
        return -1;
    }
    gl_acquire(state->lock);
    entry->place = 0;
    gl_lookup_add(&table->lookup, gl_key_of(table, entry), entry);
    gl_release(state->lock);
    return 0;
}

void gl_table_remove(gl_state *state, uint32_t index, gl_entry *entry) {
    gl_table *table = &state->tables[index];
    if (entry->place != GL_NOWHERE) {
        gl_lookup_prepare_removal(&table->lookup);
        gl_acquire(state->lock);
        gl_lookup_remove(&table->lookup, gl_key_of(table, entry), entry);
        gl_release(state->lock);
    }
    if (entry->meter) {
        gl_block_put(&table->blocks, entry->meter, METER_LINES);
    }
    gl_block_put(&table->blocks, entry, entry_lines(table));
}

void gl_entry_set(gl_state *state, gl_entry *entry, uint32_t action, uint32_t arguments,
                  const uint64_t *values, gl_choice *choice) {
    gl_acquire(state->lock);
    set_action(entry, action, arguments, values, choice);
    gl_release(state->lock);
}

gl_entry *gl_table_default(gl_state *state, uint32_t index) {
    return state->tables[index].fallback;
}
