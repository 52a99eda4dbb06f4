/* SPDX-License-Identifier: Apache-2.0
 * Tables, counters, meters, registers and multicast groups as the control plane changes them. */
#include <stdlib.h>

#include "lock.h"
#include "runtime.h"

enum { FIRST_CAPACITY = 16 };

gl_lock *gl_lock_new(void) {
    gl_lock *lock = calloc(1, sizeof *lock);
    if (!lock) {
        return NULL;
    }
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&lock->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return lock;
}

void gl_lock_free(gl_lock *lock) {
    pthread_mutex_destroy(&lock->mutex);
    free(lock);
}

static void *array_of(uint32_t count, size_t size) {
    return calloc(count ? count : 1, size);
}

gl_state *gl_state_new(gl_lock *lock, uint32_t tables, uint32_t counters, uint32_t meters, uint32_t registers) {
    gl_state *state = calloc(1, sizeof *state);
    if (!state) {
        return NULL;
    }
    *state = (gl_state){
        .lock = lock, .table_count = tables, .counter_count = counters, .meter_count = meters,
        .register_count = registers, .random = 0x9e3779b97f4a7c15u,
    };
    state->tables = array_of(tables, sizeof *state->tables);
    state->counters = array_of(counters, sizeof *state->counters);
    state->meters = array_of(meters, sizeof *state->meters);
    state->registers = array_of(registers, sizeof *state->registers);
    state->groups = array_of(GL_GROUPS, sizeof(gl_group *));
    if (!state->tables || !state->counters || !state->meters || !state->registers || !state->groups) {
        gl_state_free(state);
        return NULL;
    }
    return state;
}

static void free_table(gl_table *table) {
    if (!table->rows) {
        return;
    }
    uint32_t rows = table->kind == GL_TABLE_LIST ? table->used : table->capacity;
    for (uint32_t i = 0; i < rows; i++) {
        free((void *)(uintptr_t)table->rows[(size_t)i * table->row_words]);
    }
    free(table->rows);
    free(table->fallback);
}

void gl_state_free(gl_state *state) {
    for (uint32_t i = 0; state->tables && i < state->table_count; i++) {
        free_table(&state->tables[i]);
    }
    for (uint32_t i = 0; state->counters && i < state->counter_count; i++) {
        free(state->counters[i].cells);
    }
    for (uint32_t i = 0; state->meters && i < state->meter_count; i++) {
        free(state->meters[i].cells);
    }
    for (uint32_t i = 0; state->registers && i < state->register_count; i++) {
        free(state->registers[i].cells);
    }
    for (uint32_t i = 0; state->groups && i < GL_GROUPS; i++) {
        free(state->groups[i]);
    }
    free(state->tables);
    free(state->counters);
    free(state->meters);
    free(state->registers);
    free(state->groups);
    free(state);
}

static gl_entry *new_entry(uint32_t max_arguments) {
    return calloc(1, sizeof(gl_entry) + sizeof(uint64_t) * max_arguments);
}

int gl_state_table(gl_state *state, uint32_t index, uint32_t kind, uint32_t words, uint32_t max_arguments) {
    gl_table *table = &state->tables[index];
    table->kind = kind;
    table->words = words;
    table->row_words = 1 + words * (kind == GL_TABLE_LIST ? 2 : 1);
    table->capacity = FIRST_CAPACITY;
    table->max_arguments = max_arguments;
    table->rows = calloc((size_t)table->capacity * table->row_words, sizeof(uint64_t));
    table->fallback = new_entry(max_arguments);
    return table->rows && table->fallback ? 0 : -1;
}

int gl_state_counter(gl_state *state, uint32_t index, uint32_t size) {
    state->counters[index].cells = array_of(size, sizeof(gl_counter));
    state->counters[index].size = size;
    return state->counters[index].cells ? 0 : -1;
}

int gl_state_meter(gl_state *state, uint32_t index, uint32_t size, uint32_t counts_bytes) {
    state->meters[index].cells = array_of(size, sizeof(gl_meter));
    state->meters[index].size = size;
    state->meters[index].counts_bytes = counts_bytes;
    return state->meters[index].cells ? 0 : -1;
}

int gl_state_register(gl_state *state, uint32_t index, uint32_t size) {
    state->registers[index].cells = array_of(size, sizeof(uint64_t));
    state->registers[index].size = size;
    return state->registers[index].cells ? 0 : -1;
}

/* ---- Hash tables ---- */

static uint64_t *row_at(const gl_table *table, uint32_t i) {
    return table->rows + (size_t)i * table->row_words;
}

static void place(gl_table *table, const uint64_t *row) {
    uint32_t mask = table->capacity - 1;
    uint32_t i = (uint32_t)gl_hash(row + 1, table->words) & mask;
    while (row_at(table, i)[0]) {
        i = (i + 1) & mask;
    }
    memcpy(row_at(table, i), row, sizeof(uint64_t) * table->row_words);
}

/* Makes room for one row more, in a hash table by half, in a list by one. The larger table is filled without the lock,
 * which is only taken to put it in place: forwarding reads rows, and there is one writer at a time. */
static int grow(gl_state *state, gl_table *table) {
    int hashed = table->kind != GL_TABLE_LIST;
    if (hashed ? 2 * (table->used + 1) <= table->capacity : table->used < table->capacity) {
        return 0;
    }
    gl_table larger = *table;
    larger.capacity = 2 * table->capacity;
    larger.rows = calloc((size_t)larger.capacity * table->row_words, sizeof(uint64_t));
    if (!larger.rows) {
        return -1;
    }
    for (uint32_t i = 0; i < table->capacity; i++) {
        const uint64_t *row = row_at(table, i);
        if (hashed && row[0]) {
            place(&larger, row);
        }
    }
    if (!hashed) {
        memcpy(larger.rows, table->rows, sizeof(uint64_t) * table->row_words * table->used);
    }
    uint64_t *old = table->rows;
    gl_acquire(state->lock);
    table->rows = larger.rows;
    table->capacity = larger.capacity;
    gl_release(state->lock);
    free(old);
    return 0;
}

/* Closes the gap at row i, so that no probe stops short. */
static void close_gap(gl_table *table, uint32_t i) {
    uint32_t mask = table->capacity - 1;
    for (uint32_t j = (i + 1) & mask; row_at(table, j)[0]; j = (j + 1) & mask) {
        uint32_t home = (uint32_t)gl_hash(row_at(table, j) + 1, table->words) & mask;
        if (((j - home) & mask) >= ((j - i) & mask)) {
            memcpy(row_at(table, i), row_at(table, j), sizeof(uint64_t) * table->row_words);
            i = j;
        }
    }
    memset(row_at(table, i), 0, sizeof(uint64_t) * table->row_words);
}

static void count_prefix(gl_table *table, uint32_t length, int change) {
    table->prefixes[length] += (uint32_t)change;
    table->length_count = 0;
    for (uint32_t i = 65; i-- > 0;) {
        if (table->prefixes[i]) {
            table->lengths[table->length_count++] = (uint8_t)i;
        }
    }
}

/* ---- Entries ---- */

static void set_action(gl_entry *entry, uint32_t action, uint32_t arguments, const uint64_t *values) {
    entry->action = action;
    if (arguments) {
        memcpy(entry->arguments, values, sizeof(uint64_t) * arguments);
    }
}

/* The first row of a list whose priority is at most (with `below`, less than) a priority. */
static uint32_t list_position(const gl_table *table, int32_t priority, int below) {
    uint32_t low = 0, high = table->used;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int32_t found = ((const gl_entry *)(uintptr_t)row_at(table, middle)[0])->priority;
        if (below ? found >= priority : found > priority) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void insert_ordered(gl_table *table, gl_entry *entry, uint32_t at, const uint64_t *key,
                           const uint64_t *operand) {
    uint64_t *row = row_at(table, at);
    memmove(row + table->row_words, row, sizeof(uint64_t) * table->row_words * (table->used - at));
    row[0] = (uintptr_t)entry;
    memcpy(row + 1, key, sizeof(uint64_t) * table->words);
    memcpy(row + 1 + table->words, operand, sizeof(uint64_t) * table->words);
}

gl_entry *gl_table_insert(gl_state *state, uint32_t index, const uint64_t *key, const uint64_t *operand,
                          uint32_t prefix, uint32_t prefix_width, int32_t priority, uint32_t action,
                          uint32_t arguments, const uint64_t *values) {
    gl_table *table = &state->tables[index];
    gl_entry *entry = new_entry(table->max_arguments);
    if (!entry) {
        return NULL;
    }
    entry->priority = priority;
    set_action(entry, action, arguments, values);
    if (grow(state, table)) {
        free(entry);
        return NULL;
    }
    if (table->kind == GL_TABLE_LIST) {
        uint32_t at = list_position(table, priority, 1);
        gl_acquire(state->lock);
        insert_ordered(table, entry, at, key, operand);
    } else {
        uint64_t row[table->row_words];
        gl_acquire(state->lock);
        row[0] = (uintptr_t)entry;
        memcpy(row + 1, key, sizeof(uint64_t) * (table->words - (table->kind == GL_TABLE_LPM)));
        if (table->kind == GL_TABLE_LPM) {
            row[table->words - 1] &= gl_prefix_mask(prefix, prefix_width);
            row[table->words] = prefix;
            count_prefix(table, prefix, 1);
        }
        entry->hash = gl_hash(row + 1, table->words);
        place(table, row);
    }
    table->used++;
    gl_release(state->lock);
    return entry;
}

void gl_entry_set(gl_state *state, gl_entry *entry, uint32_t action, uint32_t arguments,
                  const uint64_t *values) {
    gl_acquire(state->lock);
    set_action(entry, action, arguments, values);
    gl_release(state->lock);
}

static uint32_t row_of(const gl_table *table, const gl_entry *entry) {
    int listed = table->kind == GL_TABLE_LIST;
    uint32_t mask = listed ? UINT32_MAX : table->capacity - 1;
    uint32_t i = listed ? list_position(table, entry->priority, 0) : (uint32_t)entry->hash & mask;
    while (row_at(table, i)[0] != (uintptr_t)entry) {
        i = (i + 1) & mask;
    }
    return i;
}

void gl_table_remove(gl_state *state, uint32_t index, gl_entry *entry) {
    gl_table *table = &state->tables[index];
    uint32_t i = row_of(table, entry);
    uint64_t *row = row_at(table, i);
    gl_acquire(state->lock);
    if (table->kind == GL_TABLE_LPM) {
        count_prefix(table, (uint32_t)row[table->words], -1);
    }
    if (table->kind == GL_TABLE_LIST) {
        memmove(row, row + table->row_words, sizeof(uint64_t) * table->row_words * (table->used - i - 1));
    } else {
        close_gap(table, i);
    }
    table->used--;
    gl_release(state->lock);
    free(entry);
}

gl_entry *gl_table_default(gl_state *state, uint32_t index) {
    return state->tables[index].fallback;
}

/* ---- Cells ---- */

void gl_counters_read(gl_state *state, uint32_t index, uint32_t first, uint32_t count, gl_counter *out) {
    gl_acquire(state->lock);
    memcpy(out, state->counters[index].cells + first, sizeof *out * count);
    gl_release(state->lock);
}

void gl_counters_write(gl_state *state, uint32_t index, uint32_t first, uint32_t count, gl_counter value) {
    gl_acquire(state->lock);
    for (uint32_t i = 0; i < count; i++) {
        state->counters[index].cells[first + i] = value;
    }
    gl_release(state->lock);
}

void gl_entry_counter_read(gl_state *state, const gl_entry *entry, gl_counter *out) {
    gl_acquire(state->lock);
    *out = entry->counter;
    gl_release(state->lock);
}

void gl_entry_counter_write(gl_state *state, gl_entry *entry, gl_counter value) {
    gl_acquire(state->lock);
    entry->counter = value;
    gl_release(state->lock);
}

void gl_meter_write(gl_state *state, uint32_t index, uint32_t cell, gl_meter_config config) {
    gl_acquire(state->lock);
    gl_meter *meter = &state->meters[index].cells[cell];
    const unsigned __int128 scale = 1000000000u;
    *meter = (gl_meter){
        .cir = config.cir, .pir = config.pir, .cbs = config.cbs * scale, .pbs = config.pbs * scale,
        .last = meter->last, .configured = config.configured,
    };
    meter->tc = meter->cbs;
    meter->tp = meter->pbs;
    gl_release(state->lock);
}

void gl_registers_read(gl_state *state, uint32_t index, uint32_t first, uint32_t count, uint64_t *out) {
    gl_acquire(state->lock);
    memcpy(out, state->registers[index].cells + first, sizeof *out * count);
    gl_release(state->lock);
}

void gl_registers_write(gl_state *state, uint32_t index, uint32_t first, uint32_t count, uint64_t value) {
    gl_acquire(state->lock);
    for (uint32_t i = 0; i < count; i++) {
        state->registers[index].cells[first + i] = value;
    }
    gl_release(state->lock);
}

int gl_group_set(gl_state *state, uint32_t group, uint32_t count, const gl_replica *replicas) {
    gl_group *fresh = NULL;
    if (count) {
        fresh = malloc(sizeof *fresh + sizeof *replicas * count);
        if (!fresh) {
            return -1;
        }
        fresh->count = count;
        memcpy(fresh->replicas, replicas, sizeof *replicas * count);
    }
    gl_acquire(state->lock);
    gl_group *old = state->groups[group];
    state->groups[group] = fresh;
    gl_release(state->lock);
    free(old);
    return 0;
}

/* ---- Without ports ---- */

typedef struct {
    gl_host host;
    gl_sent *sent;
    uint32_t capacity, count;
    uint8_t *out;
    uint32_t out_size, out_used;
    uint32_t frame_size;
    int failed;
} gl_collector;

static gl_packet *new_packet(uint32_t frame_size) {
    gl_packet *packet = malloc(sizeof *packet + GL_HEADROOM + frame_size);
    if (packet) {
        packet->data = packet->room + GL_HEADROOM;
    }
    return packet;
}

static gl_packet *collector_copy(gl_host *host, const gl_packet *packet, uint32_t offset) {
    gl_collector *collector = (gl_collector *)host;
    gl_packet *copy = new_packet(collector->frame_size);
    if (!copy) {
        collector->failed = 1;
        return NULL;
    }
    copy->port = packet->port;
    copy->length = packet->length - offset;
    memcpy(copy->data, packet->data + offset, copy->length);
    return copy;
}

static void collector_emit(gl_host *host, gl_packet *packet, uint32_t port, uint32_t queue, uint64_t now) {
    gl_collector *collector = (gl_collector *)host;
    (void)now;
    if (collector->count == collector->capacity || packet->length > collector->out_size - collector->out_used) {
        collector->failed = 1;
    } else {
        collector->sent[collector->count++] = (gl_sent){port, queue, packet->length, collector->out_used};
        memcpy(collector->out + collector->out_used, packet->data, packet->length);
        collector->out_used += packet->length;
    }
    free(packet);
}

static void collector_discard(gl_host *host, gl_packet *packet, int by_program) {
    (void)host;
    (void)by_program;
    free(packet);
}

int gl_process_one(gl_process *process, gl_state *state, uint32_t port, const uint8_t *frame, uint32_t length,
                   uint64_t now, gl_sent *sent, uint32_t capacity, uint8_t *out, uint32_t out_size) {
    gl_collector collector = {
        .host = {collector_copy, collector_emit, collector_discard},
        .sent = sent, .capacity = capacity, .out = out, .out_size = out_size, .frame_size = length,
    };
    gl_packet *packet = new_packet(length);
    if (!packet) {
        return -1;
    }
    packet->port = (uint16_t)port;
    packet->length = length;
    memcpy(packet->data, frame, length);
    gl_acquire(state->lock);
    process(state, packet, now, &collector.host);
    gl_release(state->lock);
    return collector.failed ? -1 : (int)collector.count;
}
