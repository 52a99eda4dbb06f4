/* SPDX-License-Identifier: Apache-2.0
 * Several changes between two packets. */
#include "state/state.h"

static int change(gl_state *state, const gl_change *c) {
    switch (c->kind) {
    case GL_CHANGE_ADD:
        return gl_table_add(state, c->index, c->target);
    case GL_CHANGE_REMOVE:
        gl_table_remove(state, c->index, c->target);
        return 0;
    case GL_CHANGE_SET:
        gl_entry_set(state, c->target, c->index, c->count, c->values, c->other);
        return 0;
    case GL_CHANGE_CHOICE:
        return gl_choice_set(state, c->target, c->count, c->other, c->values);
    case GL_CHANGE_ENTRY_COUNTER:
        gl_entry_counter_write(state, c->target, c->counter);
        return 0;
    case GL_CHANGE_ENTRY_METER:
        gl_entry_meter_write(state, c->target, c->meter);
        return 0;
    case GL_CHANGE_ENTRY_METER_CLEAR:
        gl_entry_meter_clear(state, c->target);
        return 0;
    case GL_CHANGE_COUNTERS:
        gl_counters_write(state, c->index, c->first, c->count, c->counter);
        return 0;
    case GL_CHANGE_REGISTERS:
        gl_registers_write(state, c->index, c->first, c->count, c->values);
        return 0;
    case GL_CHANGE_METERS:
        gl_meters_write(state, c->index, c->first, c->count, c->meter);
        return 0;
    case GL_CHANGE_METERS_CLEAR:
        gl_meters_clear(state, c->index, c->first, c->count);
        return 0;
    case GL_CHANGE_GROUP:
        return gl_group_set(state, c->index, c->count, c->other);
    default:
        return gl_session_set(state, c->index, c->count, c->other, c->limit, c->priority);
    }
}

int gl_change_all(gl_state *state, uint32_t count, const gl_change *changes) {
    int failed = 0;
    gl_acquire(state->lock);
    for (uint32_t i = 0; i < count; i++) {
        failed |= change(state, &changes[i]);
    }
    gl_release(state->lock);
    return failed ? -1 : 0;
}
