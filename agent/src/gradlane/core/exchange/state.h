/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What the exchange knows: the host's processes with their regions, the tensors and groups that they have registered, and
 * what failed.
 */
#ifndef GRADLANE_STATE_H
#define GRADLANE_STATE_H

#include <stdbool.h>

#include "exchange/exchange.h"
#include "exchange/tolerance.h"
#include "wire.h"

typedef struct tensor tensor;
typedef struct group group;
typedef struct joint joint;
typedef struct step_plan step_plan;

/* Bytes. What is done before the network and other jobs are served again, about a millisecond; of that at a time; what one
 * submission is counted for; and the most that it may have, as the engine takes it at once. */
enum { WORK_BYTES = 4 << 20, PIECE = 1 << 20, SUBMISSION_BYTES = 64 << 10, SUBMISSION_MOST = 16 << 20 };

typedef struct {
    uint8_t *memory; /* NULL: none */
    uint64_t bytes;
    uint32_t users;  /* operations in flight */
} region;

typedef struct {
    gl_exchange *exchange;
    unsigned number;
    gl_channel *channel; /* NULL: not open */
    int kicks;
    region *regions; /* GL_MAX_REGIONS of them; NULL: none yet */
} process;

/* See ownership.h. */
typedef struct {
    step_plan **plans;   /* by their first steps, ascending; before these: direct, with equal shares */
    unsigned count;
    uint32_t begun;      /* the highest step of any tensor that has begun */
    uint32_t limit;      /* while `held`: the highest that may begin */
    bool held;
    tensor *waiting;     /* for that */
} ownership;

struct gl_exchange {
    gl_exchange_config config;
    gl_runner *runner;
    gl_engine *engine;
    int notify, again; /* `again`: an eventfd that calls for what a turn has left */
    process processes[GL_MAX_PROCESSES];
    tensor *tensors[GL_MAX_TENSORS];
    group *groups[GL_MAX_GROUPS];
    tensor *work; /* tensors whose partitions are to be prepared and submitted */
    joint *moving, **moving_tail; /* with bytes to move, or to be submitted */
    uint32_t steps[GL_MAX_TENSORS]; /* of tensors that have been released: of the next one of their number */
    ownership ownership;
    uint64_t dead[GL_MAX_RANKS / 64]; /* hosts */
    uint64_t closed[GL_MAX_GROUPS / 64]; /* groups that were closed before they were registered */
    gl_tolerance tolerance;
    gl_failure failure;
    gl_exchange_statistics statistics;
    uint32_t left_out, late_no_memory; /* the latest steps that `statistics` counts as such */
    unsigned under_way;
};

void fail(gl_exchange *x, unsigned kind, unsigned process, uint32_t tensor, uint32_t step, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* Submits to the engine; fails the job if it can't. */
bool submit(gl_exchange *x, const gl_submission *s, uint64_t now);
/* `how`: GL_DONE or GL_LOST. */
void completed(gl_exchange *x, unsigned process, uint16_t slot, unsigned how);
/* Whether there is nobody to talk to but local processes. */
static inline bool alone(const gl_exchange *x) { return x->config.hosts == 1 && !x->config.servers; }
/* Combines the contributions of `count` local processes, in their order; a mean is their mean. */
void reduce_local(uint8_t *out, const uint8_t *const *sources, unsigned count, unsigned reduction, uint64_t elements,
                  unsigned element_type);

#endif
