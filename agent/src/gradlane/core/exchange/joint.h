/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A collective of a group at this host: what its local members brought, in their order, and how their bytes move.
 */
#ifndef GRADLANE_JOINT_H
#define GRADLANE_JOINT_H

#include "exchange/group.h"

typedef struct {
    uint8_t *in, *out;
    region *in_region, *out_region;
    uint16_t slot;
    bool present;
} part;

/* GATHERING: the members' contributions become one; SETTLING: of a group of this host alone, it becomes the result;
 * SUBMITTING, SCATTERING: the result goes to the members. */
enum { GATHERING, SETTLING, SUBMITTING, SCATTERING };

struct joint {
    struct joint *next, *before; /* of its group */
    struct joint *next_moving; /* of those with work left */
    group *group;
    uint64_t since;
    uint32_t sequence, step; /* step: of its first submission */
    uint8_t collective, element_type, reduction, algorithm, stage;
    bool standing;
    uint16_t root;
    uint32_t loss;
    uint64_t elements;
    uint64_t block, most; /* elements of a host's block, and those that one submission takes */
    unsigned arrived, submitted, open, steps; /* submissions: done, not yet completed, all */
    unsigned move;        /* of its stage, and the bytes of it that are done: */
    uint64_t moved;
    uint8_t *in, *out, *scratch_in, *scratch_out; /* what the engine works on; own memory of it */
    part parts[];
};

static inline unsigned size_of(const group *g) { return (unsigned)g->host_count * g->member_count; }

/* Chooses where the contributions come together and where the result goes. False if memory is out, which fails the job. */
bool joint_prepare(gl_exchange *x, joint *j);
/* Moves a piece of what its stage has to move. Returns its bytes, with what a move costs by itself; 0: the stage is over. */
uint64_t joint_move(gl_exchange *x, joint *j);
void joint_free(joint *j);

#endif
