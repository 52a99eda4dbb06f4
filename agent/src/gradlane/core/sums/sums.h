/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Sums in a switch: the all-reduces of tensors that have a stream (stream.h). A step is summed by the switch if its submission
 * has a generation that is new enough, and the exponents of its slices are known from the step before; all ranks see that
 * alike. Otherwise it is an ordinary operation, from whose result the exponents are taken.
 */
#ifndef GRADLANE_SUMS_H
#define GRADLANE_SUMS_H

#include "base/batch.h"
#include "operation/operation.h"
#include "sums/stream.h"

typedef struct {
    job *job;
    operations *operations;
    stream **streams;    /* by tensor; NULL: there is none */
    unsigned most;       /* streams that the job's slots are enough for */
    uint32_t barred;     /* generations up to this one are over */
    bool budgets;        /* of the job: sums may lack workers */
    bool halted;
    unsigned pending;    /* parts of which something is to be prepared */
    gl_sum_waits waits;  /* by step modulo their number; of step 0: none */
} sums;

/* False: memory is out; sums_free is called in any case. */
bool sums_new(sums *x, job *j, operations *all);
void sums_free(sums *x);
/* The tensor gets a stream, or goes on with the one that it had. False: there are no slots for it, it makes no sense, or memory
 * is out. */
bool sums_open(sums *x, const gl_sum_stream *like);
/* The stream of a wire tensor; NULL: it has none. */
stream *sums_find(const sums *x, uint16_t tensor);
/* As gl_submit, of a tensor that has a stream. */
int sums_submit(sums *x, stream *s, const gl_submission *is, uint64_t now);
/* An operation is complete. Returns whether it was the sums' own, so that nobody else is to be told. */
bool sums_took(sums *x, gl_event *event);

/* The header is of this job and has its token. Returns whether it is a sum that was awaited. */
bool sums_receive(sums *x, const uint8_t *h, uint32_t bytes, bool congested, uint64_t now);

/* Contributions to send now, or 0. */
int sums_transmit(sums *x, gl_batch *b, uint64_t now);
void on_stream_due(sums *x, stream *s, uint64_t now);
/* Whether something could be sent if the port let it. */
bool sums_waiting(const sums *x);
uint64_t sums_deadline(const sums *x);
uint64_t sums_patience(const sums *x);

/* As gl_engine_sums_halt and so on (engine.h). */
void sums_halt(sums *x);
unsigned sums_state(const sums *x, gl_sum_state *states, unsigned most);
bool sums_resume(sums *x, uint32_t generation, bool by_switch, const gl_sum_rerun *reruns, unsigned count, uint64_t now);
uint64_t sums_overdue(const sums *x, uint64_t now);
void sums_waits(const sums *x, gl_sum_waits *waits);
/* The part that was submitted longest ago of those that the switch sums; NULL: there is none. */
const part *sums_oldest(const sums *x);

#endif
