/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of processes, and their collectives.
 */
#ifndef GRADLANE_GROUP_H
#define GRADLANE_GROUP_H

#include "exchange/state.h"

typedef struct {
    uint8_t *in, *out;
    region *in_region, *out_region;
    uint16_t slot;
    bool present;
} part;

/* A collective of a group: what its local members brought, in their order. */
typedef struct joint {
    struct joint *next;
    uint64_t since;
    uint32_t sequence, step; /* step: of its first submission */
    uint8_t collective, element_type, reduction;
    uint16_t root;
    uint64_t elements;
    unsigned arrived, open, steps; /* open: submissions of `steps` that are not yet completed */
    uint8_t *in, *out, *scratch_in, *scratch_out; /* what the engine works on; own memory of it */
    part parts[];
} joint;

struct group {
    uint16_t id, host_count, member_count;
    uint16_t *hosts;
    bool pair;
    uint32_t from, to;
    uint8_t algorithms[GL_SIZE_CLASSES];
    int16_t member_of[GL_MAX_PROCESSES]; /* process -> its place among the local members, or -1 */
    uint32_t sequences[GL_MAX_PROCESSES]; /* next one of each local member */
    uint32_t step;
    joint *joints, **joints_tail;
};

void group_command(gl_exchange *x, process *p, const gl_command *c, uint64_t now);
void group_event(gl_exchange *x, const gl_event *event);
void group_free(group *g);

#endif
