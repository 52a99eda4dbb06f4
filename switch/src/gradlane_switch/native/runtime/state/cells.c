/* SPDX-License-Identifier: Apache-2.0
 * Counters, meters, registers, action profiles, multicast groups and clone sessions as the control plane changes them. */
#include <stdlib.h>

#include "base/lock.h"
#include "program/program.h"

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

static void configure(gl_meter *meter, gl_meter_config config) {
    const unsigned __int128 scale = 1000000000u;
    meter->cir = config.cir;
    meter->pir = config.pir;
    meter->tc = meter->cbs = config.cbs * scale;
    meter->tp = meter->pbs = config.pbs * scale;
    meter->configured = config.configured;
}

void gl_meter_write(gl_state *state, uint32_t index, uint32_t cell, gl_meter_config config) {
    gl_acquire(state->lock);
    configure(&state->meters[index].cells[cell], config);
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

void gl_entry_meter_read(gl_state *state, const gl_entry *entry, gl_counter *out) {
    gl_acquire(state->lock);
    memcpy(out, entry->meter->counts, sizeof entry->meter->counts);
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

/* ---- Action profiles ---- */

gl_entry *gl_member_new(uint32_t max_arguments) {
    return calloc(1, sizeof(gl_entry) + sizeof(uint64_t) * max_arguments);
}

void gl_member_free(gl_entry *member) {
    free(member);
}

gl_choice *gl_choice_new(void) {
    return calloc(1, sizeof(gl_choice));
}

/* Finds out which members can be chosen. */
static void look(const gl_state *state, gl_choice *choice) {
    choice->count = 0;
    for (uint32_t i = 0; i < choice->total; i++) {
        if (!state->down[choice->ports[i]]) {
            choice->members[choice->count++] = choice->all[i];
        }
    }
}

static void watch(gl_state *state, gl_choice *choice) {
    if (choice->link) {
        *choice->link = choice->next;
        if (choice->next) {
            choice->next->link = choice->link;
        }
        choice->link = NULL;
    }
    if (choice->ports) {
        choice->next = state->watching;
        choice->link = &state->watching;
        if (choice->next) {
            choice->next->link = &choice->next;
        }
        state->watching = choice;
        look(state, choice);
    }
}

static void free_members(gl_choice choice) {
    free(choice.members);
    free(choice.all);
    free(choice.ports);
}

int gl_choice_set(gl_state *state, gl_choice *choice, uint32_t count, gl_entry **members, const uint64_t *ports) {
    gl_choice fresh = {.count = count, .total = count};
    if (count) {
        fresh.members = calloc(count, sizeof *members);
        fresh.all = ports ? calloc(count, sizeof *members) : NULL;
        fresh.ports = ports ? calloc(count, sizeof *fresh.ports) : NULL;
        if (!fresh.members || (ports && (!fresh.all || !fresh.ports))) {
            free_members(fresh);
            return -1;
        }
        memcpy(fresh.members, members, sizeof *members * count);
    }
    for (uint32_t i = 0; fresh.ports && i < count; i++) {
        fresh.all[i] = members[i];
        fresh.ports[i] = (uint16_t)ports[i];
    }
    gl_acquire(state->lock);
    gl_choice old = *choice;
    fresh.next = old.next;
    fresh.link = old.link;
    *choice = fresh;
    watch(state, choice);
    gl_release(state->lock);
    free_members(old);
    return 0;
}

void gl_port_state(gl_state *state, uint32_t port, uint32_t up) {
    gl_acquire(state->lock);
    if (state->down[port] != !up) {
        state->down[port] = !up;
        for (gl_choice *choice = state->watching; choice; choice = choice->next) {
            look(state, choice);
        }
    }
    gl_release(state->lock);
}

void gl_choice_free(gl_choice *choice) {
    free_members(*choice);
    free(choice);
}

/* ---- Copies ---- */

static int set_replicas(gl_state *state, gl_group **where, uint32_t count, const gl_replica *replicas, uint32_t limit,
                        uint32_t priority) {
    gl_group *fresh = NULL;
    if (count) {
        fresh = malloc(sizeof *fresh + sizeof *replicas * count);
        if (!fresh) {
            return -1;
        }
        fresh->count = count;
        fresh->limit = limit;
        fresh->priority = priority;
        memcpy(fresh->replicas, replicas, sizeof *replicas * count);
    }
    gl_acquire(state->lock);
    gl_group *old = *where;
    *where = fresh;
    gl_release(state->lock);
    free(old);
    return 0;
}

int gl_group_set(gl_state *state, uint32_t group, uint32_t count, const gl_replica *replicas) {
    return set_replicas(state, &state->groups[group], count, replicas, UINT32_MAX, 0);
}

int gl_session_set(gl_state *state, uint32_t session, uint32_t count, const gl_replica *replicas, uint32_t limit,
                   uint32_t priority) {
    return set_replicas(state, &state->sessions[session], count, replicas, limit, priority);
}

void gl_losses_read(gl_state *state, gl_losses *out) {
    gl_acquire(state->lock);
    *out = state->losses;
    gl_release(state->lock);
}
