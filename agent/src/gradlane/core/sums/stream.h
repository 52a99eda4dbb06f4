/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A tensor's stream of slices that a switch sums. Its slices are numbered from step to step, S in each; number m is summed in
 * slot m mod 2 W of the stream's. A worker sends m when it has the sums of all up to m - W, and has seen every other worker in
 * one of m - W or later: so all have the sums of all up to m - 2 W, which lies in that slot. Of a job without loss budgets the
 * second follows from the first.
 *
 * What a worker contributed to its latest step is kept until a sum of a later step comes, which tells that all have all sums of
 * that one: nobody is missing in a sum that has not been seen in another one of the step. With it hosts can complete a step
 * that the switch can't.
 */
#ifndef GRADLANE_STREAM_H
#define GRADLANE_STREAM_H

#include "base/bits.h"
#include "job/job.h"
#include "plan/submission.h"
#include "rate/rtt.h"
#include "sums/states.h"

enum { MOST_PARTS = 16 };

/* Of a part's submission. PARKED: until it is known whether the switch does its work; AGAIN: hosts do it, in the integers. */
typedef enum { IDLE = 0, PARKED, SUMMING, BY_HOSTS, AGAIN } stage;
/* Of a step that hosts do again. */
typedef enum { NOTHING = 0, TO_DO, IN_FLIGHT, DONE } rerun_stage;

/* A partition of the tensor. */
typedef struct {
    uint64_t elements;
    uint32_t first, slices; /* of the stream's in a step */
    uint32_t step, known;   /* that was submitted last; whose result the exponents are of: 0: none */
    uint32_t done;          /* slices that have their sums */
    stage stage;
    uint64_t since;
    gl_submission is;
    uint32_t budget;        /* slices of a step whose sums a worker may be missing in */
    uint32_t missing[GL_SUM_MEMBERS]; /* by rank: those it is missing in; at the closer also those that it may be */
    rerun_stage rerun;
    bool next;              /* another step is to be done again when the operation in flight is over */
    /* While a step is done again: by slice who is missing in its sum, lower and upper 16 bits; then by element. */
    int32_t *told, *integers;
} part;

/* What became of a number of the window. DEFERRED: it seems lost, but is left to the closer (closing.h) for a round trip. */
typedef enum { FLYING = 0, LOST, DEFERRED, FREE } flight_state; /* but for the last they are lists */
typedef struct {
    flight_state state;
    uint16_t next, before;   /* of its list */
    uint8_t part;
    bool repaired, old;      /* old: given up for nothing but its age */
    uint32_t slice, number;
    uint32_t sequence, first_sequence; /* of sending it: last, and first */
    uint32_t may_miss;       /* workers without which this rank, the closer, has let the switch complete it */
    uint64_t first_at, sent_at, deferred_at;
    uint32_t length;
} flight;

typedef struct stream {
    timer due;              /* when the oldest in flight is given up */
    uint16_t tensor;
    uint8_t element_type;
    unsigned count;         /* parts */
    uint32_t slices;        /* of a step */
    uint32_t window;
    uint32_t step, by_switch, rerun; /* the latest that has begun, by a switch, and that was done again */
    uint32_t generation;    /* of what a switch sums */
    unsigned next_part;     /* what is sent next */
    uint32_t next_slice;
    int8_t *exponents;      /* by slice of a step */
    uint8_t *contributions; /* by slice, `stride` apart: of step `kept`, those of which `has` has a bit */
    uint64_t *has;
    uint32_t kept;
    unsigned reminding;     /* how often these are still to be sent once more (remind.h) */
    uint32_t reminder;      /* the next one's slice */
    uint32_t *missing;      /* of these, who is not in their sums; NULL: the job has no budgets, nobody ever is */
    uint32_t *members;      /* by number modulo two windows: who is in its sum; 0: it has not come. NULL: as above */
    uint32_t seen[GL_SUM_MEMBERS], reach; /* the latest number in whose sum a worker is; the least of the others' */
    uint8_t epoch;          /* of the switch, by the generation's first sum; 0: none has come */
    flight *flights;        /* by number modulo the window; then the heads of the lists */
    uint8_t *datagrams;     /* of these, `stride` apart */
    uint32_t stride;
    uint32_t flying;
    uint32_t sequence, latest; /* of what is sent next; the highest whose sum has come */
    double allowed;         /* in flight: the congestion window */
    uint64_t cut_at, progress_at, asked_at; /* asked: for what was given up for its age */
    unsigned backoff;
    rtt rtt;
    part parts[];
} stream;

/* Bytes of lanes in a whole slice; 0: none has room. */
uint32_t stream_lane_bytes(const gl_config *c);
/* NULL: memory is out, or it makes no sense. */
stream *stream_new(const gl_config *c, const gl_sum_stream *like, bool budgets);
void stream_free(stream *s);
/* Everything in the window is forgotten. */
void stream_clear(job *j, stream *s);
/* Something was lost, or a switch's queue is long: once a round trip that halves what may be in flight. */
void stream_slow_down(stream *s, uint64_t now);
/* A flight goes to the end of another list, or of none. */
void flight_move(stream *s, flight *f, flight_state state);
static inline uint8_t *datagram_of(const stream *s, const flight *f) { return s->datagrams + (f - s->flights) * s->stride; }
/* Of a slice of step `kept`. */
static inline uint8_t *contribution_of(const stream *s, uint32_t slice) { return s->contributions + (size_t)slice * s->stride; }
/* The first one of a list; NULL: it has none. */
static inline flight *flight_first(const stream *s, flight_state list) {
    const uint16_t first = s->flights[s->window + list].next;
    return first == s->window + list ? NULL : &s->flights[first];
}

/* Elements of a slice of a part. */
static inline uint32_t per_slice(const gl_config *c) {
    return stream_lane_bytes(c) / (c->sums.lanes == GL_TYPE_INT16_LANES ? 2 : 4);
}
static inline uint32_t elements_of(const gl_config *c, const part *p, uint32_t slice) {
    const uint64_t left = p->elements - (uint64_t)slice * per_slice(c);
    return left < per_slice(c) ? (uint32_t)left : per_slice(c);
}
static inline uint32_t first_number(const stream *s, uint32_t step) { return (step - 1) * s->slices; }
static inline uint32_t number_of(const stream *s, const part *p, uint32_t slice) {
    return first_number(s, p->step) + p->first + slice;
}
static inline unsigned divisor_of(const gl_config *c, const gl_submission *s) { return s->reduction <= GL_MEAN ? c->workers : 1; }

#endif
