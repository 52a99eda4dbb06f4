/* SPDX-License-Identifier: Apache-2.0
 * Counters, meters and registers as the control plane reads and writes them. */
#include <string.h>

#include "state/state.h"

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

void gl_entry_counters_read(gl_state *state, uint32_t count, gl_entry *const *entries, gl_counter *out) {
    gl_acquire(state->lock);
    for (uint32_t i = 0; i < count; i++) {
        out[i] = entries[i]->counter;
    }
    gl_release(state->lock);
}

void gl_entry_counter_write(gl_state *state, gl_entry *entry, gl_counter value) {
    gl_acquire(state->lock);
    entry->counter = value;
    gl_release(state->lock);
}

static void configure(gl_meter *meter, gl_meter_config config) {
    const unsigned __int128 scale = 1000000000u;
    meter->cir = config.cir;
    meter->pir = config.pir;
    meter->tc = meter->cbs = config.cbs * scale;
    meter->tp = meter->pbs = config.pbs * scale;
    meter->configured = config.configured;
}

void gl_meters_write(gl_state *state, uint32_t index, uint32_t first, uint32_t count, gl_meter_config config) {
    gl_acquire(state->lock);
    for (uint32_t i = 0; i < count; i++) {
        configure(&state->meters[index].cells[first + i], config);
    }
    gl_release(state->lock);
}

void gl_meters_configured(gl_state *state, uint32_t index, uint32_t first, uint32_t count, gl_meter_config *out) {
    const unsigned __int128 scale = 1000000000u;
    const gl_meter *cells = state->meters[index].cells + first;
    gl_acquire(state->lock);
    for (uint32_t i = 0; i < count; i++) {
        const gl_meter *cell = &cells[i];
        out[i] = (gl_meter_config){cell->cir, (uint64_t)(cell->cbs / scale), cell->pir, (uint64_t)(cell->pbs / scale),
                                   cell->configured};
    }
    gl_release(state->lock);
}

void gl_entry_meter_write(gl_state *state, gl_entry *entry, gl_meter_config config) {
    gl_acquire(state->lock);
    configure(entry->meter, config);
    gl_release(state->lock);
}

void gl_meters_read(gl_state *state, uint32_t index, uint32_t first, uint32_t count, gl_counter *out) {
    const gl_meter *cells = state->meters[index].cells + first;
    gl_acquire(state->lock);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(out + 3 * i, cells[i].counts, sizeof cells[i].counts);
    }
    gl_release(state->lock);
}

void gl_meters_clear(gl_state *state, uint32_t index, uint32_t first, uint32_t count) {
    gl_meter *cells = state->meters[index].cells + first;
    gl_acquire(state->lock);
    for (uint32_t i = 0; i < count; i++) {
        memset(cells[i].counts, 0, sizeof cells[i].counts);
    }
    gl_release(state->lock);
}

void gl_entry_meters_read(gl_state *state, uint32_t count, gl_entry *const *entries, gl_counter *out) {
    gl_acquire(state->lock);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(out + 3 * i, entries[i]->meter->counts, sizeof entries[i]->meter->counts);
    }
    gl_release(state->lock);
}

void gl_entry_meter_clear(gl_state *state, gl_entry *entry) {
    gl_acquire(state->lock);
    memset(entry->meter->counts, 0, sizeof entry->meter->counts);
    gl_release(state->lock);
}

void gl_registers_read(gl_state *state, uint32_t index, uint32_t first, uint32_t count, uint64_t *out) {
    const gl_register_array *array = &state->registers[index];
    gl_acquire(state->lock);
    memcpy(out, array->cells + (size_t)first * array->words, sizeof *out * count * array->words);
    gl_release(state->lock);
}

void gl_registers_write(gl_state *state, uint32_t index, uint32_t first, uint32_t count, const uint64_t *value) {
    gl_register_array *array = &state->registers[index];
    gl_acquire(state->lock);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(array->cells + (size_t)(first + i) * array->words, value, sizeof *value * array->words);
    }
    gl_release(state->lock);
}
