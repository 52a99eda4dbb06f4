/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What one rank does in a collective operation: nodes that reduce, and links to other ranks. A plan is all there is to an
 * algorithm; what sends, waits and repairs is the same for all.
 */
#ifndef GRADLANE_PLAN_H
#define GRADLANE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "job/losses.h"
#include "plan/submission.h"

struct tx_message;
struct rx_message;

typedef struct node node;

/* All that one rank sends another in one phase (pushes or pulls) of an operation is a message: the slices of some nodes, which
 * both ends list in the same order. */
typedef struct {
    node *node;
    uint32_t start; /* the node's first slice in the message */
    unsigned turn;  /* of the plan's, in which it is sent; 0: as soon as it can be */
    unsigned from;  /* incoming: its place among the node's */
} segment;

typedef struct link {
    struct link *next; /* of the operation */
    uint16_t rank;     /* the other end; the number of ranks: the multicast group */
    uint16_t meeting;  /* streams that meet at the busiest port on the path, this one included */
    bool pull, exact;
    bool prompt;       /* incoming: it begins with what depends on nothing but that rank's submission */
    uint32_t slices;
    unsigned count;
    segment *segments;
    struct tx_message *sent;     /* NULL: it is over */
    struct rx_message *received; /* NULL: nothing has come yet */
    uint64_t left_at;            /* when its rank was left out, us; 0: it was not */
} link;

/* The order in which a rank sends, one segment after the other, each when a node is done, so that all ranks go through the
 * rounds of a schedule together; turn 0 is all that has no place in it. */
typedef struct {
    unsigned turn, count; /* under way; all but turn 0 */
    uint32_t unsent;      /* slices of this turn */
    struct {
        link *link;
        unsigned segment;
        const node *after; /* NULL: any */
    } of[];               /* by turn, less one */
} turns;

/* Between a node and a link. */
typedef struct {
    link *link;
    uint32_t start; /* the node's first slice in its message */
} edge;

/* What this rank does with a range of an operation's slices: it reduces what it receives from `from` together with its `own`
 * contribution; the result goes to `out` and is sent on to `to`. Without `from`, `own` is sent as it is. A swap is two nodes of
 * the same slices: the result of the `partial` one is the own contribution of the `final` one, and is sent on, slice by slice,
 * when what it is swapped for has come. */
struct node {
    struct plan *plan;
    uint32_t first, slices; /* of the operation's slices, for layers and magnitudes */
    uint32_t last_length;   /* bytes of the last one; 0: a server that has not seen it yet */
    const uint8_t *own, *instead; /* instead: of a result that is lost; NULL: zeros */
    uint8_t *out;
    unsigned divisor;       /* of the result; 0: the number of contributions that arrived */
    unsigned from_count, to_count;
    unsigned own_at;        /* `own` comes before this one of `from` */
    edge *from, *to;        /* from: by rank */
    node *partial, *final;  /* the other one of a swap; NULL: there is none */
    uint64_t bytes;
    /* While it is in flight: */
    uint16_t *awaited;      /* by slice: contributions that have neither come nor been given up; NULL: there is one */
    slot **waiting;         /* by slice, within by `from`: contributions that wait for others; NULL: none has to */
    uint16_t *added;        /* by slice: so many of `from` are one sum, in the place of the first; NULL as `waiting` */
    slot **results;         /* by slice: what is sent on; NULL: nothing is */
    uint64_t *empty;        /* slices that nobody contributed to: sent on without payload */
    uint32_t done, floor;   /* slices; all below `floor` are done */
    unsigned unsent;        /* messages that have not been stopped */
};

typedef struct plan {
    uint32_t step;
    uint16_t tensor;
    uint8_t encoding;    /* the header's element_type */
    bool late;           /* it may be reduced without workers that are late */
    bool in_rows;        /* contributions come here from this rank's row alone */
    bool critical;       /* pushes say that the training is in a critical phase */
    uint32_t loss_class, push_loss, pull_loss;
    uint16_t *layers;    /* by slice */
    uint8_t *magnitudes; /* NULL: all 255 */
    uint8_t *copy;       /* of the contribution, where results replace what has yet to be sent; or NULL */
    turns *turns;        /* NULL: everything is sent as soon as it can be */
    node **nodes;
    unsigned node_count;
    link *outgoing, *incoming;
    link **ends[2];      /* of both lists */
    link **links;        /* by rank: an outgoing push and pull, incoming ones; NULL: there are none yet */
} plan;

/* A worker's plan; without `in` of the submission only of the part that it owns, and later of the rest. False: memory is out, a
 * message is too long, or the layers are not of one loss class that tolerates what the submission does; what has been made is
 * freed by plan_free. */
bool plan_worker(plan *p, const gl_config *c, const gl_submission *s);
/* A server's, of a push of `slices` slices whose step, tensor, encoding and loss class are in the plan. `layer`: of one of
 * them, which stands for those that nobody's contribution comes of. */
bool plan_server(plan *p, const gl_config *c, uint32_t slices, uint16_t layer);
/* The link from a rank, or to it. NULL: there is none. */
static inline link *find_link(const plan *p, bool incoming, unsigned rank, bool pull) {
    return p->links ? p->links[4 * rank + 2 * incoming + pull] : NULL;
}
/* All of it but what is in flight. */
void plan_free(plan *p);

/* Whether the submission makes sense; everything that depends on its bytes comes later. */
bool submission_is_valid(const gl_config *c, const gl_submission *s);

/* How many own the parts of a direct all-reduce among `size` workers. */
static inline unsigned owners_among(const gl_config *c, unsigned size) {
    return c->servers && size == c->workers ? c->servers : size;
}

/* The most that may be lost of a message of a wire tensor, parts per million. Of a group's it is for those to say who call its
 * collectives: a message with more of a budget than its receiver's part of the operation is refused there. */
static inline uint32_t tolerated_of(const gl_config *c, uint16_t tensor, uint32_t loss_class, bool pull) {
    return tensor < GL_FIRST_GROUP ? tolerated(c, loss_class, pull) : 1000000;
}
/* What the plan of an operation says of that. */
static inline uint32_t loss_of(const link *l, const plan *p) { return l->exact ? 0 : l->pull ? p->pull_loss : p->push_loss; }

/* Where a slice of a message belongs. */
static inline const segment *find_segment(const link *l, uint32_t slice) {
    unsigned low = 0, high = l->count;
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        *(l->segments[middle].start <= slice ? &low : &high) = middle;
    }
    return &l->segments[low];
}

/* Bytes of a node's slice. */
static inline uint32_t length_of(const gl_config *c, const node *n, uint32_t i) {
    return i == n->slices - 1 ? n->last_length : c->slice_bytes;
}

#endif
