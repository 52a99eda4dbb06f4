/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The receiver: what it knows of messages that come, and what those above it call.
 */
#ifndef GRADLANE_RX_H
#define GRADLANE_RX_H

#include "job/job.h"
#include "plan/plan.h"

typedef struct rx_message rx_message;

struct rx_message {
    timer check;
    struct operation *operation; /* NULL: it is over */
    link *link;                  /* NULL: the operation does not know it yet */
    rx_message *next_early;      /* of those that its operation does not know yet */
    uint32_t id, step, slices, budget, received;
    uint32_t reach;          /* one more than the highest slice that arrived */
    uint32_t trimmed, ahead; /* slices of which only the header came; those of them from `reach` on */
    uint16_t tensor, source, layer; /* layer: of some slice of it */
    uint8_t flags, encoding;
    uint32_t loss_class;
    bool complete, end_seen, refused; /* refused: there was no memory for some slice */
    bool left_out;   /* it comes too late: nothing of it counts */
    uint8_t in_vain; /* BITMAPs since something that one asked for came */
    uint64_t began;  /* when the first of it came, us */
    uint64_t *arrived;
    uint64_t *cut;   /* the trimmed ones; NULL: none yet */
    slot **kept;     /* by slice: what has come before its link was known; NULL: nothing has */
};

/* Of a stream that comes in. */
typedef struct {
    uint32_t received, marked, unreported; /* slices */
    uint64_t since, reported_at;           /* when the first unreported one came; the last REPORT */
    uint16_t passed[GL_WAYS];              /* of the unreported ones, those without a mark, by way */
} incoming;

/* Of a rank that sends. */
typedef struct {
    rx_message **ring; /* NULL: nothing has come yet */
    incoming incoming[2]; /* unicast, multicast */
} source;

typedef struct {
    job *job;
    source *sources; /* by rank */
} rx;

/* False if memory is out; rx_free is called in any case, after the operations are gone. */
bool rx_new(rx *x, job *j);
void rx_free(rx *x);

/* Datagrams of messages that come. DATA and REPAIR: `length` bytes of payload. */
void on_slice(rx *x, unsigned source, const uint8_t *h, uint32_t length, uint64_t now);
void on_trimmed(rx *x, unsigned source, const uint8_t *h, uint64_t now);
void on_probe(rx *x, unsigned source, const uint8_t *h, uint64_t now);
void on_check_due(rx *x, rx_message *m, uint64_t now);
/* DATA or REPAIRs of a message have come in, `bytes` of them, of `segment` each but the last: their sender is told how its stream
 * gets through. */
void report_arrivals(rx *x, unsigned source, const uint8_t *h, uint32_t bytes, uint32_t segment, bool congested, uint64_t now);

/* There may be room now for what there was none. */
void rx_resume(rx *x, rx_message *m, uint64_t now);
/* Keeps a contribution that has to wait. NULL: memory is out, and the job ends. */
slot *rx_keep(job *j, const uint8_t *payload, uint32_t length);
static inline void rx_drop(job *j, slot *s) {
    j->kept -= j->config.slice_bytes;
    slot_free(&j->pool, s);
}
/* The same of a message whose link is not known yet. */
void rx_keep_early(job *j, rx_message *m, uint32_t slice, const uint8_t *payload, uint32_t length);
/* Its operation is over, or does not take it; what is kept of it is dropped. */
void rx_detach(job *j, rx_message *m);
/* Frees it: what still comes of it is as new. No operation may know it any more. */
void rx_forget(rx *x, rx_message *m);
/* The same of all that has come from a rank. */
void rx_drop_source(rx *x, unsigned rank);

#endif
