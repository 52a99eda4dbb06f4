/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The sender: what it knows of messages that are sent, and what those above it call.
 */
#ifndef GRADLANE_TX_H
#define GRADLANE_TX_H

#include "base/batch.h"
#include "job/job.h"
#include "plan/plan.h"
#include "rate/ways.h"
#include "tx/path.h"

typedef struct tx_message tx_message;

/* A receiver of a message. */
typedef struct {
    timer probe;           /* set when the first pass is over */
    heap_item turn;        /* among those of its lane that have something to repair */
    tx_message *message;
    uint16_t rank;
    bool stopped;
    uint32_t repairs, cursor;
    uint64_t *todo;        /* slices to repair; NULL before the first BITMAP */
    uint32_t *repaired_at, *repair_sequence;
    uint32_t probes, probe_wait; /* that were sent since it was last set, up to PROBES_ALIKE; us to the next one */
    uint32_t probed;       /* what of the lane was sent before this slice has been asked for */
} target;

/* A flow, and what waits to be sent on it. */
typedef struct lane lane;
struct lane {
    flow flow;
    ways ways;                    /* of its slices, if it is to one rank */
    heap_item turn, near;         /* among the lanes: of those with something to send (lanes.c); by their round trip */
    lane *next_changed;
    bool changed, open;           /* it is among those; its flow lets it send, and it is among these */
    bool busy;
    uint32_t place;               /* in the round of the lanes */
    uint64_t idle_since;
    uint32_t backlog, begun;      /* slices to send; messages */
    uint32_t latest;              /* the message of the latest slice of a first pass */
    heap messages, repairs;       /* that have something to send: by layer, then by age; by age */
};

struct tx_message {
    heap_item turn;        /* among those of its lane that have something to send; before, among those without a number */
    lane *lane;
    link *link;
    const plan *plan;
    uint32_t id, slices, budget, loss_class;
    uint64_t order;        /* of its start */
    uint8_t header[GL_HEADER]; /* what is the same for all slices */
    bool started, active, traced; /* active: it has a number */
    bool reads_own;        /* it sends slices of `in` */
    uint16_t *queue;       /* order in which slices became ready; NULL: 0, 1, 2 ... */
    uint32_t ready, sent;
    uint32_t *sent_at, *flow_sequence, last_sequence;
    unsigned targets, stopped;
    target target[];
};

typedef struct {
    job *job;
    lane *lanes;        /* by rank; then multicast */
    lane *changed;      /* since lanes were last looked at */
    heap due, open;     /* that have something to send: by when their flow lets them, those that it lets by their turn */
    uint64_t turn;      /* the next one: of the lane in this place, modulo how many there are */
    heap nearest;       /* the lanes to other ranks by their round trip */
    uint32_t next_sequence, oldest_sequence, oldest_tolerant; /* of messages in flight; of those of them with a budget */
    uint64_t order;     /* counts what is queued */
    tx_message *sent[RING];
    heap waiting[2];    /* messages without a number: exact ones, those with a budget */
    timer window;       /* looks after those of them that wait for the window */
    uint64_t moved_at;  /* when a slice of one with a budget was last sent, us */
    uint32_t unstopped; /* messages that were started */
    bool left_over;     /* a control found no room behind slices */
    gl_path **paths;    /* by rank: GL_PATHS of them, the latest first; NULL: no trace has come back yet */
} tx;

/* False if memory is out; tx_free is called in any case, after the messages are gone. */
bool tx_new(tx *x, job *j);
void tx_free(tx *x);

/* What is to be sent on a link of a plan. NULL if memory is out. */
tx_message *tx_message_new(tx *x, const plan *p, link *l);
void tx_message_free(tx *x, tx_message *m);
void activate(tx *x); /* gives numbers to what waits for them, as far as there are any; after messages were freed */
void tx_begin(tx *x, tx_message *m);                 /* with what it has of its own */
void tx_ready(tx *x, tx_message *m, uint32_t slice); /* may be sent now, or in its turn; starts the message */
void tx_turn(tx *x, const plan *p);                  /* the plan's next one, if it may begin */

/* Datagrams to send now, or 0. */
int tx_transmit(tx *x, gl_batch *b, uint64_t now);
uint64_t tx_deadline(const tx *x, uint64_t now);
uint64_t tx_patience(const tx *x, uint64_t now);

/* What answers to what was sent: the header, and what comes after it. */
void on_stop(tx *x, unsigned source, const uint8_t *h, const uint8_t *bits, uint64_t now);
void on_bitmap(tx *x, unsigned source, const uint8_t *h, const uint8_t *bits, uint64_t now);
void on_report(tx *x, unsigned source, const uint8_t *h, const uint8_t *payload, uint64_t now);
void on_trace(tx *x, unsigned source, const uint8_t *h, uint32_t length);
void on_probe_due(tx *x, target *t, uint64_t now);
void on_window_due(tx *x, uint64_t now);

#endif
