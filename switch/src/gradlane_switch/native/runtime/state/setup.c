/* SPDX-License-Identifier: Apache-2.0
 * A program's state as a whole. */
#include <stdlib.h>

#include "state/mailbox.h"
#include "state/state.h"

static void *array_of(uint32_t count, size_t size) {
    return calloc(count ? count : 1, size);
}

gl_state *gl_state_new(gl_lock *lock, uint32_t tables, uint32_t counters, uint32_t meters, uint32_t registers,
                       uint32_t digests) {
    gl_state *state = calloc(1, sizeof *state);
    if (!state) {
        return NULL;
    }
    *state = (gl_state){
        .lock = lock, .table_count = tables, .counter_count = counters, .meter_count = meters,
        .register_count = registers, .random = 0x9e3779b97f4a7c15u, .cpu_port = GL_PORTS,
        .post = gl_post,
    };
    int failed = gl_mailbox_init(&state->mailbox, digests);
    state->tables = array_of(tables, sizeof *state->tables);
    state->counters = array_of(counters, sizeof *state->counters);
    state->meters = array_of(meters, sizeof *state->meters);
    state->registers = array_of(registers, sizeof *state->registers);
    state->groups = array_of(GL_GROUPS, sizeof(gl_group *));
    state->sessions = array_of(GL_SESSIONS, sizeof(gl_group *));
    if (failed || !state->tables || !state->counters || !state->meters || !state->registers || !state->groups ||
        !state->sessions) {
        gl_state_free(state);
        return NULL;
    }
    return state;
}

void gl_state_free(gl_state *state) {
    for (uint32_t i = 0; state->tables && i < state->table_count; i++) {
        gl_lookup_free(&state->tables[i].lookup);
        gl_blocks_clear(&state->tables[i].blocks);
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
    for (uint32_t i = 0; state->sessions && i < GL_SESSIONS; i++) {
        free(state->sessions[i]);
    }
    free(state->groups);
    free(state->sessions);
    gl_mailbox_clear(&state->mailbox);
    free(state);
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

int gl_state_register(gl_state *state, uint32_t index, uint32_t size, uint32_t words) {
    state->registers[index].cells = array_of(size, sizeof(uint64_t) * words);
    state->registers[index].size = size;
    state->registers[index].words = words;
    return state->registers[index].cells ? 0 : -1;
}

void gl_losses_read(gl_state *state, gl_losses *out) {
    gl_acquire(state->lock);
    *out = state->losses;
    gl_release(state->lock);
}
