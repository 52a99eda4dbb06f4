/* SPDX-License-Identifier: Apache-2.0
 * What the actions of generated programs do with state. */
#ifndef GL_ACTIONS_H
#define GL_ACTIONS_H

#include "base/counter.h"
#include "base/inline.h"
#include "base/random.h"
#include "state/state.h"

GL_INLINE void gl_count(gl_state *state, uint32_t array, uint64_t index, uint32_t length) {
    if (index < state->counters[array].size) {
        gl_tally(&state->counters[array].cells[index], length);
    } else {
        state->losses.out_of_range++;
    }
}

/* The cell, or NULL if there is none with that index. */
GL_INLINE uint64_t *gl_register(gl_state *state, uint32_t array, uint64_t index, uint32_t words) {
    if (index < state->registers[array].size) {
        return state->registers[array].cells + index * words;
    }
    state->losses.out_of_range++;
    return NULL;
}

/* The meter, or NULL if there is none with that index. */
GL_INLINE gl_meter *gl_meter_at(gl_state *state, uint32_t array, uint64_t index) {
    if (index < state->meters[array].size) {
        return &state->meters[array].cells[index];
    }
    state->losses.out_of_range++;
    return NULL;
}

enum { GL_LOGGED = 100 };

/* What the program says, to the log. What is too much is counted only. */
GL_INLINE void gl_log(gl_state *state, uint32_t message, uint64_t now, const uint64_t *values, uint32_t count) {
    if (now - state->log_time >= 1000000000u || now < state->log_time) {
        state->log_time = now;
        state->log_count = 0;
    }
    if (state->log_count == GL_LOGGED) {
        state->losses.log++;
        return;
    }
    state->log_count++;
    state->post(state, GL_MAIL_LOG, message, now, (const uint8_t *)values, 8 * count);
}

GL_INLINE void gl_assertion_failed(gl_state *state, uint32_t message, uint64_t now) {
    state->losses.assertions++;
    gl_log(state, message, now, NULL, 0);
}

/* A number in [low, high]. */
GL_INLINE uint64_t gl_random_between(gl_state *state, uint64_t low, uint64_t high) {
    uint64_t random = gl_random(&state->random);
    if (high <= low) {
        return low;
    }
    uint64_t span = high - low + 1;
    return span == 0 ? random : low + (uint64_t)(((unsigned __int128)random * span) >> 64);
}

#endif
