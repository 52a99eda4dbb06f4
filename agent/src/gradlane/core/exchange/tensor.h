/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Tensors that are registered, and their all-reduces.
 */
#ifndef GRADLANE_TENSOR_H
#define GRADLANE_TENSOR_H

#include "arithmetic/residual.h"
#include "exchange/state.h"

typedef struct {
    gl_partition is;
    uint32_t slices;
    uint16_t *layers;
    uint8_t reduction;
    bool lossy, summed; /* summed: a switch may sum it */
    gl_residual residual;
    uint64_t *missed; /* of the operation in flight, slices whose results were lost; NULL: none may be, or nothing is owed */
} partition;

/* A step that this host has begun without its processes. */
typedef struct absence absence;

struct tensor {
    struct tensor *next; /* whose partitions are still to be submitted */
    uint16_t id;
    uint8_t element_type, reduction;
    bool feedback;
    uint64_t elements;
    uint8_t *contributions[GL_MAX_PROCESSES], *result;
    uint8_t *gathered; /* what the host contributes: the only contribution, the result's memory, or own memory */
    bool own_memory;
    uint32_t step;
    unsigned count, begun, open; /* partitions: all; submitted; not yet completed */
    partition partitions[GL_MAX_PARTITIONS];
    /* Of the partition that is being prepared: bytes that are done, and of its slices so far: */
    uint64_t done;
    uint8_t *magnitudes;
    float *means;
    double squares;
    uint64_t since, present;     /* when the first process of this step came; a bit for each that has */
    unsigned arrived;
    absence *absences;           /* the oldest first; their steps come after `step`, or, while it is open, from it on */
    uint32_t asked;              /* the highest step that others wait for */
    uint16_t slots[GL_MAX_PROCESSES];
};

void tensor_command(gl_exchange *x, process *p, const gl_command *c, uint64_t now);
/* A piece of what the most urgent tensor has left. Returns about how many bytes it took. */
uint64_t tensor_work(gl_exchange *x, uint64_t now);
void tensor_event(gl_exchange *x, const gl_event *event, uint64_t now);
void tensor_free(tensor *t);

#endif
