/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What a worker asks for: its part in a collective operation.
 */
#ifndef GRADLANE_SUBMISSION_H
#define GRADLANE_SUBMISSION_H

#include <stdint.h>

#include "arithmetic/residual.h"
#include "arithmetic/types.h"

/* A barrier is an all-reduce of one element. */
enum {
    GL_ALL_REDUCE = 1, GL_REDUCE_SCATTER, GL_ALL_GATHER, GL_BROADCAST, GL_REDUCE, GL_ALL_TO_ALL, GL_SEND, GL_RECEIVE
};
/* Wire tensors from here on are not steps of the training: they are the collectives of group `tensor - GL_FIRST_GROUP`. */
enum { GL_FIRST_GROUP = 0xF000 };
/* Of a tensor. Numbers above it are those of steps that are done again. */
enum { GL_GREATEST_STEP = 0x3fffffff };
/* DIRECT: every member of the group, or every server, has a part of the elements that it reduces. STRAGGLAR: an all-reduce
 * that goes on without one of them, the straggler, as far as it can. GRID: an all-reduce in rows, and between them. */
enum { GL_DIRECT = 1, GL_RING, GL_STRAGGLAR, GL_GRID };

/* A worker's part in a collective operation. `elements`: all-reduce, broadcast, reduce, send, receive: of `in` and `out`;
 * reduce-scatter: of `out`; all-gather: of `in`; all-to-all: of each block of both. `in` and `out` live until it is
 * COMPLETED; they may be the same where all of it is exact. */
typedef struct {
    uint32_t step;
    uint16_t tensor; /* with the step unique among what is in flight */
    uint8_t collective, algorithm, element_type, reduction;
    uint8_t critical; /* the phase of the training, for servers; the losses below are this rank's in that phase */
    uint8_t standing; /* a RECEIVE of what may never be sent: nobody is late with it */
    uint16_t root;   /* BROADCAST, REDUCE: rank; SEND, RECEIVE: the other side; STRAGGLAR: the straggler */
    uint16_t group_size;
    const uint16_t *group; /* ranks of workers, ascending; NULL: all of them */
    uint64_t elements;
    uint64_t stride;       /* bytes from one block of `in` or `out` to the next where there are several; 0: contiguous */
    const uint8_t *in;
    uint8_t *out;
    const uint16_t *layers;      /* per slice of `in`, all of one loss class; NULL: layer 0 */
    const uint8_t *magnitudes;   /* per slice of `in`; NULL: 255 */
    /* Parts per million, at most what the class tolerates; of a group's SEND and RECEIVE anything. What does not come of a
     * RECEIVE stays in `out` as it was. */
    uint32_t push_loss, pull_loss;
    uint8_t late; /* a direct ALL_REDUCE to GL_MEAN_OF_ARRIVED may leave out workers that are late (gl_config) */
    /* Of a tensor with a stream of sums (gl_engine_sums_open): its sums are a switch's if this is new enough; 0: the hosts'.
     * What is owed of the partition, if anything is, is then all that the integers do not say. */
    uint32_t generation;
    gl_residual *residual;
    uint8_t absent; /* such a tensor's: this rank is late, and `in` is zeros. Of so many steps as it may be left out of (gl_config) */
    const uint32_t *shares; /* of who owns the parts of a direct ALL_REDUCE, see gl_shard_start; NULL: equal ones */
} gl_submission;

/* Whether a collective reduces. */
int gl_is_reduction(unsigned collective);
/* First slice of part `index` of a tensor of `slices` slices that is shared among `parts` ranks. `shares`: what the owners
 * have, added up: parts + 1 numbers that ascend from 0, so that owner k has shares[k + 1] - shares[k] of shares[parts], which
 * may be nothing. NULL: equal ones; so they are where a part of one would be too long for a message. */
uint32_t gl_shard_start(uint32_t slices, const uint32_t *shares, uint32_t index, uint32_t parts);

#endif
