/* SPDX-License-Identifier: Apache-2.0
 *
 * What exchange.c (processes, regions, commands), tensor.c (registered tensors) and group.c (other collectives) share.
 */
#ifndef GRADLANE_EXCHANGE_INTERNAL_H
#define GRADLANE_EXCHANGE_INTERNAL_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "exchange/exchange.h"
#include "arithmetic/residual.h"
#include "exchange/tolerance.h"

typedef struct {
    uint8_t *memory; /* NULL: none */
    uint64_t bytes;
    uint32_t users;  /* operations under way */
} region;

typedef struct {
    gl_exchange *exchange;
    unsigned number;
    gl_channel *channel; /* NULL: not open */
    int kicks;
    region *regions; /* GL_MAX_REGIONS of them; NULL: none yet */
} process;

typedef struct {
    gl_partition is;
    uint32_t slices;
    uint16_t *layers;
    bool lossy;
    gl_residual residual;
} partition;

typedef struct tensor {
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
    uint64_t since, present;     /* when the first process of this step came; a bit for each that has */
    unsigned arrived;
    uint16_t slots[GL_MAX_PROCESSES];
} tensor;

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

typedef struct {
    uint16_t id, host_count, member_count;
    uint16_t *hosts;
    bool pair;
    uint32_t from, to;
    uint8_t algorithms[GL_SIZE_CLASSES];
    int16_t member_of[GL_MAX_PROCESSES]; /* process -> its place among the local members, or -1 */
    uint32_t sequences[GL_MAX_PROCESSES]; /* next one of each local member */
    uint32_t step;
    joint *joints, **joints_tail;
} group;

struct gl_exchange {
    gl_exchange_config config;
    gl_runner *runner;
    gl_engine *engine;
    int notify, again; /* `again`: an eventfd that calls for more of the work that is left */
    process processes[GL_MAX_PROCESSES];
    tensor *tensors[GL_MAX_TENSORS];
    group *groups[GL_MAX_GROUPS];
    tensor *work; /* tensors whose partitions are to be prepared and submitted */
    gl_tolerance tolerance;
    gl_failure failure;
    gl_exchange_statistics statistics;
    unsigned under_way;
};

/* exchange.c */
void fail(gl_exchange *x, unsigned kind, unsigned process, uint32_t tensor, uint32_t step, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* Submits to the engine; fails the job if it can't. */
bool submit(gl_exchange *x, const gl_submission *s, uint64_t now);
void completed(gl_exchange *x, unsigned process, uint16_t slot);
/* Whether there is nobody to talk to but local processes. */
static inline bool alone(const gl_exchange *x) { return x->config.hosts == 1 && !x->config.servers; }

/* tensor.c */
void tensor_command(gl_exchange *x, process *p, const gl_command *c, uint64_t now);
void tensor_work(gl_exchange *x, uint64_t now);
void tensor_event(gl_exchange *x, const gl_event *event);
void tensor_free(tensor *t);

/* group.c */
void group_command(gl_exchange *x, process *p, const gl_command *c, uint64_t now);
void group_event(gl_exchange *x, const gl_event *event);
void group_free(group *g);

/* Combines the contributions of `count` local processes, in their order; a mean is their mean. */
void reduce_local(uint8_t *out, const uint8_t *const *sources, unsigned count, unsigned reduction, uint64_t elements,
                  unsigned element_type);

#endif
