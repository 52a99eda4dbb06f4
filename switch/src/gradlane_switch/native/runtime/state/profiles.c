/* SPDX-License-Identifier: Apache-2.0
 * Action profiles as the control plane changes them, and as ports go up and down. */
#include <stdlib.h>
#include <string.h>

#include "state/state.h"

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
