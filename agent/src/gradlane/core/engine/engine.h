/* SPDX-License-Identifier: Apache-2.0
 *
 * The bounded-loss transport and the collectives on it, without I/O: datagrams go in and come out, time is an
 * argument. io.c runs it on sockets, the tests run it on a simulated network. All times are microseconds of one
 * monotonic clock; hosts are ranks, io.c knows their addresses. Not thread-safe: io.c holds a lock around each call.
 */
#ifndef GRADLANE_ENGINE_H
#define GRADLANE_ENGINE_H

#include <stdint.h>
#include <sys/uio.h>

#include "rate/port.h"
#include "wire.h"

enum {
    GL_BATCH = 64,          /* datagrams: UDP_MAX_SEGMENTS of every kernel that has UDP_SEGMENT */
    GL_BATCH_BYTES = 65507, /* of a batch of several: an IPv4 packet, less its headers */
    GL_MAX_RANKS = 256,
};

/* Slices of these layers and magnitudes (both inclusive) have this queue class or drop precedence. */
typedef struct {
    uint16_t first_layer, last_layer;
    uint8_t least, most, value;
} gl_range;

/* Slices of these layers (inclusive) may be lost: parts per million of a message, as a push and as a pull. */
typedef struct {
    uint16_t first_layer, last_layer;
    uint32_t push, pull;
} gl_loss;

typedef struct {
    uint16_t job, rank, workers, servers; /* servers == 0: every worker aggregates a shard */
    uint16_t slice_bytes;                 /* payload of every slice but a message's last */
    uint64_t token;
    uint32_t message_base;                /* the same at all ranks; message = base + sequence * stride + rank */
    uint32_t window;                      /* messages in flight of one source */
    uint64_t rate;                        /* bit/s of this host's link */
    uint64_t buffer;                      /* bytes that a port of the fabric holds; queues may grow to half of it */
    uint32_t loss_count;
    const gl_loss *losses;                /* loss classes; the first that holds a layer is its class, no loss without one */
    uint8_t multicast;                    /* this aggregator sends results to its multicast group, not to each worker */
    gl_port *port;                        /* that this host's jobs share; NULL: one of its own */
    uint32_t weight;                      /* of this job beside others at a port; 0: 1 */
    uint64_t memory;                      /* bytes for contributions that wait for aggregation */
    uint32_t trace_every;                 /* messages of a path from one TRACE to the next; 0: none */
    uint8_t tag;                          /* DSCP and ECN are written here, by these ranges; otherwise by the switch */
    uint32_t class_count, precedence_count;
    const gl_range *classes, *precedences; /* disjoint; of all three lists the engine keeps copies */
} gl_config;

typedef struct {
    uint64_t datagrams_sent, datagrams_received;
    uint64_t slices_sent, slices_repaired, slices_expected, slices_delivered, slices_lost, slices_duplicate, slices_late;
    uint64_t budget_total; /* budgets of the messages received, in slices */
    uint64_t budget_violations;
    uint64_t trimmed;
    uint64_t probes_sent, bitmaps_sent, stops_sent, reports_sent;
    uint64_t traces_sent, traces_returned, bad_trace;
    uint64_t ecn_marked;
    uint64_t bad_header, bad_token, bad_job, bad_source, bad_range, bad_length, bad_budget, bad_class, bad_message, no_memory;
    uint64_t messages_sent, messages_received;
    uint64_t memory_used; /* bytes of slices that wait to be reduced, or to be stopped */
} gl_statistics;

/* What was exchanged with a peer, or of a loss class. */
typedef struct {
    uint64_t slices_sent, slices_repaired, bytes_sent; /* bytes: of UDP payload, both ways */
    uint64_t slices_expected, slices_delivered, slices_lost, slices_duplicate, slices_late, budget_total, ecn_marked;
    uint64_t bytes_received;
} gl_counts;

/* A barrier is an all-reduce of one element. */
enum {
    GL_ALL_REDUCE = 1, GL_REDUCE_SCATTER, GL_ALL_GATHER, GL_BROADCAST, GL_REDUCE, GL_ALL_TO_ALL, GL_SEND, GL_RECEIVE
};
/* DIRECT: every member of the group, or every server, has a part of the elements that it reduces. */
enum { GL_DIRECT = 1, GL_RING };
/* MEAN: the zero-filled sum over the size of the group. Means are of floating-point types only. */
enum { GL_MEAN_OF_ARRIVED = 1, GL_MEAN, GL_SUM, GL_MIN, GL_MAX, GL_PRODUCT };

/* A worker's part in a collective operation. `elements`: all-reduce, broadcast, reduce, send, receive: of `in` and `out`;
 * reduce-scatter: of `out`; all-gather: of `in`; all-to-all: of each block of both. `in` and `out` live until it is
 * COMPLETED; they may be the same where all of it is exact. */
typedef struct {
    uint32_t step;
    uint16_t tensor; /* with the step unique among what is under way */
    uint8_t collective, algorithm, element_type, reduction;
    uint16_t root;   /* BROADCAST, REDUCE: rank; SEND, RECEIVE: the other side */
    uint16_t group_size;
    const uint16_t *group; /* ranks of workers, ascending; NULL: all of them */
    uint64_t elements;
    uint64_t stride;       /* bytes from one block of `in` or `out` to the next where there are several; 0: contiguous */
    const uint8_t *in;
    uint8_t *out;
    const uint16_t *layers;      /* per slice of `in`, all of one loss class; NULL: layer 0 */
    const uint8_t *magnitudes;   /* per slice of `in`; NULL: 255 */
    uint32_t push_loss, pull_loss; /* parts per million, at most what the class tolerates */
} gl_submission;

enum { GL_EVENT_COMPLETED = 1, GL_EVENT_LOST = 2, GL_EVENT_MISMATCH = 3 };

/* COMPLETED: the result of (step, tensor) is in `out`.
 * LOST: a push of (step, tensor) is over; `lost` has a bit set for each of its `slices` that did not count. None is told
 * of a push that arrived whole.
 * MISMATCH: `source` disagrees about the shape of (step, tensor); the operation can't complete. Told once of each source. */
typedef struct gl_event {
    struct gl_event *next;
    uint32_t kind, step;
    uint16_t tensor, source;
    uint32_t first_slice, slices, lost_slices;
    uint8_t lost[];
} gl_event;

/* One or more datagrams to one receiver: equal sizes but for the last, so one UDP_SEGMENT send carries them, or one for
 * each run of equal tags. */
typedef struct {
    uint16_t to;      /* a rank; the number of ranks stands for the multicast group of this aggregator */
    uint16_t segment;
    uint16_t datagrams;
    uint8_t tos[GL_BATCH]; /* of each datagram; 0: whatever the socket has */
    uint8_t pieces[GL_BATCH]; /* of `iov` that make up a datagram, which they do in turn */
    int iov_count;
    struct iovec iov[2 * GL_BATCH];
    uint8_t headers[GL_BATCH][GL_HEADER];
    uint8_t control[GL_HEADER + GL_MAX_SLICES / 8];
} gl_batch;

enum { GL_ROUTES = 8 };

/* What a switch told in a trace: its ports, and the queue that the trace has left: depth in units of `depth_unit` bytes
 * (0: packets), ns of waiting. Colour of the port's virtual queue: 0 green, 1 yellow, above that red. */
typedef struct {
    uint16_t switch_id, ingress_port, egress_port;
    uint8_t queue_class, color, depth_unit;
    uint32_t depth, wait;
} gl_hop;

/* A way through the fabric, how many traces took it, and what the latest of them met, in the order of the way. */
typedef struct {
    uint64_t count;
    uint8_t hops;
    gl_hop hop[GL_MAX_HOPS];
} gl_route;

typedef struct gl_engine gl_engine;

/* NULL if memory is out or the configuration makes no sense. */
gl_engine *gl_engine_new(const gl_config *config);
void gl_engine_free(gl_engine *engine);
uint16_t gl_engine_job(const gl_engine *engine);

/* Starts an operation; what the submission points to but `in` and `out` is copied. 0, or -1 if it makes no sense, one of
 * its step and tensor is already under way, a message would have more than GL_MAX_SLICES slices, or memory is out. */
int gl_submit(gl_engine *engine, const gl_submission *submission, uint64_t now);
/* First slice of part `index` of a tensor of `slices` slices that is shared among `parts` ranks. */
uint32_t gl_shard_start(uint32_t slices, uint32_t index, uint32_t parts);

/* Bytes of an element, 0 if there is no such type. */
unsigned gl_element_bytes(unsigned element_type);

void gl_receive(gl_engine *engine, const uint8_t *datagram, uint32_t length, int congested, uint64_t now);
/* Datagrams to send now, or 0. The batch's memory is valid until the next call of any function. */
int gl_transmit(gl_engine *engine, gl_batch *batch, uint64_t now);
/* When gl_transmit may next have something to send if nothing arrives before; UINT64_MAX = never. */
uint64_t gl_deadline(const gl_engine *engine, uint64_t now);
/* How long (us) arrivals may be left to gather, so that one wake-up serves many: little of a round trip. */
uint64_t gl_patience(const gl_engine *engine);

int gl_engine_has_event(const gl_engine *engine);
/* The operation that was submitted longest ago, and whom it waits for: bit r of `missing` is rank r. Those whose
 * contribution has not begun to come; if there are none, those of whom the rest is missing; else those who owe a result. */
typedef struct {
    uint64_t age; /* us */
    uint32_t step;
    uint16_t tensor;
    uint64_t missing[GL_MAX_RANKS / 64];
    uint8_t direct; /* it is their own contributions, which wait for nobody, that have not begun to come */
} gl_waiting;
/* Returns 0 if none is under way, else 1. */
int gl_oldest(const gl_engine *engine, uint64_t now, gl_waiting *waiting);

gl_event *gl_next_event(gl_engine *engine); /* the caller frees it with gl_event_free */
void gl_event_free(gl_event *event);
/* Whether every message that was sent has been stopped by all its receivers. */
int gl_engine_idle(const gl_engine *engine);
const gl_statistics *gl_engine_statistics(const gl_engine *engine);
/* 0, or -1 if there is no such rank (== ranks: the multicast group) or class. */
int gl_peer_statistics(const gl_engine *engine, uint16_t rank, gl_counts *counts);
int gl_class_statistics(const gl_engine *engine, uint32_t loss_class, gl_counts *counts);
/* When a rank was last heard: a datagram of it with the job's token; 0: never. */
uint64_t gl_heard(const gl_engine *engine, uint16_t rank);
/* Current pacing rate (bit/s) and smoothed round-trip time (us) towards a rank. */
void gl_path_state(const gl_engine *engine, uint16_t rank, uint64_t *rate, uint32_t *srtt);
/* The ways that traces to a rank have taken, the latest first; at most GL_ROUTES are known. Returns their number. */
unsigned gl_routes(const gl_engine *engine, uint16_t rank, gl_route *routes);

#endif
