/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Operations in flight.
 */
#ifndef GRADLANE_OPERATION_H
#define GRADLANE_OPERATION_H

#include "job/job.h"
#include "operation/arrivals.h"
#include "operation/events.h"
#include "operation/leaving.h"
#include "plan/plan.h"
#include "rx/rx.h"
#include "tx/tx.h"

enum { OPERATIONS = 1024, GROUPS = UINT16_MAX + 1 - GL_FIRST_GROUP }; /* OPERATIONS: buckets, a power of two */

/* A collective operation as this rank takes part in it: as a worker from its submission on, as a server from its first
 * datagram on. What comes before a worker's submission is kept in `early`. */
typedef struct operation operation;
struct operation {
    operation *next; /* of its bucket */
    plan plan;
    bool planned, local, told; /* local: a worker's; told: it is COMPLETED */
    bool standing;             /* nobody is late with it */
    bool absent;               /* it began without this rank, which has yet to come; `early` has results for it */
    bool overdue;              /* whoever has not come by now is left out, as far as it may be */
    uint16_t begun;            /* workers whose contribution has */
    timer deadline;
    uint64_t since;
    rx_message *early;
    uint32_t open;       /* nodes that are not done, and messages that read from `own` */
    uint32_t unstopped;  /* messages */
    uint64_t *mismatched; /* ranks that disagree about its shape, as has been told; NULL: none */
};

typedef struct {
    job *job;
    tx *tx;
    rx *rx;
    operation *buckets[OPERATIONS];
    uint64_t closed[(UINT16_MAX + 1) / 64]; /* tensors of which nothing begins any more */
    uint64_t **members; /* GROUPS sets of workers, NULL: it is not known; NULL: none is */
    gl_event *events, **events_tail;
    arrivals arrivals;
    leaving leaving;
    const uint8_t **sources; /* of the slice that is being reduced: a place for each rank's contribution */
    gl_event *failed; /* what is told when memory is out; NULL: it has been */
} operations;

/* What the sender and the receiver call, with `operations`. */
extern const upcalls operation_upcalls;

/* False: memory is out; operations_free is called in any case. */
bool operations_new(operations *all, job *j, tx *x, rx *r, const gl_config *config);
void operations_free(operations *all);

/* As gl_submit (engine.h). */
int operation_submit(operations *all, const gl_submission *s, uint64_t now);
void on_deadline(operations *all, operation *o, uint64_t now);
/* As gl_engine_close and gl_engine_drop. */
void operations_close(operations *all, uint16_t tensor);
void operations_drop(operations *all, unsigned rank);
/* NULL: memory is out, and the job over. */
gl_event *tell(operations *all, uint32_t kind, uint32_t step, uint16_t tensor, uint32_t slices);
gl_event *next_event(operations *all);
bool has_event(const operations *all);
int operation_oldest(const operations *all, uint64_t now, gl_waiting *waiting);

#endif
