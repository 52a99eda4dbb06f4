/* SPDX-License-Identifier: Apache-2.0
 * Multicast groups and clone sessions as the control plane changes them. */
#include <stdlib.h>
#include <string.h>

#include "state/state.h"

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
