/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the engine share: send.c (messages, repair), congestion.c (a path's rate), receive.c (validation,
 * completion), port.c (the receiver's port), aggregate.c (operations, shards, reduction), trace.c and tagging.c.
 */
#ifndef GRADLANE_INTERNAL_H
#define GRADLANE_INTERNAL_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

enum {
    RING = 4096,             /* messages of one source that are remembered, so that a late PROBE gets its STOP */
    FRAME_OVERHEAD = 42,     /* bytes of Ethernet, IPv4 and UDP headers */
    REPORT_EVERY = 8,        /* slices, but neither more often nor, if any came, more seldom than: */
    REPORT_LEAST = 100,      /* us */
    REPORT_MOST = 1000,      /* us */
    STREAM_IDLE = 6000,      /* us without a slice after which a stream counts as over */
    SHARE_WINDOW = 2000,     /* us over which a port's use is measured */
    REPORT_BYTES = 20,
    INITIAL_RTT = 1000,      /* us */
    PROBE_WAIT_MAX = 100000, /* us */
    REORDER_MIN = 300,       /* us */
    BACKOFF_MAX = 3,         /* doublings of the time from one BITMAP to the next */
    PATIENCE = 4,            /* of the shortest round trip: one part may pass before arrivals are looked at */
    PATIENCE_MAX = 500,      /* us */
};

typedef struct operation operation;
typedef struct aggregation aggregation;
typedef struct tx_message tx_message;
typedef struct rx_message rx_message;

/* A local worker's tensor: what it contributes and where the result goes. */
struct operation {
    operation *next;
    uint64_t key;
    uint32_t step, slices, last_length;
    uint16_t tensor;
    uint8_t encoding;
    uint32_t loss_class, push_loss, pull_loss;
    const uint8_t *in;
    uint8_t *out;
    uint16_t *layers;
    uint8_t *magnitudes;
    uint32_t shards_open, pushes_open;
};

/* One shard at its aggregator. */
struct aggregation {
    aggregation *next;
    uint64_t key;
    uint32_t step, slices, first, last_length;
    uint16_t tensor;
    uint8_t encoding;
    uint32_t loss_class;
    operation *local;
    rx_message **sources; /* by worker rank */
    uint16_t *resolved;   /* per slice: workers whose contribution arrived or is lost for good */
    uint16_t *layers;
    uint64_t *empty;      /* slices that nobody contributed to */
    uint8_t *result;
    uint32_t reduced, pulls_open;
    uint64_t memory;
    tx_message **pulls;
    unsigned pull_count;
};

typedef struct {
    uint16_t rank;
    bool stopped;
    uint32_t repairs, cursor;
    uint64_t *todo;        /* slices to repair; NULL before the first BITMAP */
    uint32_t *repaired_at, *repair_sequence;
    uint64_t probe_at;     /* UINT64_MAX: not before the first pass is over */
    uint32_t probe_wait;
} target;

typedef struct path path;

struct tx_message {
    tx_message *next;      /* of the same path, or waiting for the window */
    path *path;
    uint32_t id, step, slices, budget, first, last_length;
    uint16_t tensor;
    uint8_t flags, encoding; /* encoding: element type and reduction, as in the header */
    uint32_t loss_class;
    bool traced;
    const uint8_t *payload;
    const uint16_t *layers;
    const uint8_t *magnitudes; /* NULL: all 255 */
    const uint64_t *empty;     /* slices sent without payload */
    uint16_t *queue;           /* order in which slices became ready; NULL: 0, 1, 2 ... */
    uint32_t ready, sent;
    uint32_t *sent_at, *path_sequence, last_sequence;
    operation *operation;
    aggregation *aggregation;
    unsigned targets, stopped;
    target target[];
};

struct rx_message {
    rx_message *next_open;
    uint32_t id, step, slices, budget, received, last_length;
    uint32_t reach;          /* one more than the highest slice that arrived */
    uint32_t trimmed, ahead; /* slices of which only the header came; those of them from `reach` on */
    uint16_t tensor, source, layer; /* layer: of some slice of it */
    uint8_t flags, encoding;
    uint32_t loss_class;
    bool complete, end_seen;
    uint8_t in_vain; /* BITMAPs since something that one asked for came */
    uint64_t check_at;
    uint64_t *arrived;
    uint64_t *cut; /* the trimmed ones; NULL: none yet */
    uint8_t *buffer; /* push: own memory; pull: inside the operation's `out` */
    aggregation *aggregation;
    operation *operation;
    uint32_t first;
};

/* What a receiver last reported of a stream. */
typedef struct {
    uint32_t received, marked, acknowledged; /* slices; what of the path was sent before this one is settled */
    int32_t missing;                         /* the most that ever was */
    double share; /* bytes per us that it leaves for the stream; 0: not told yet */
    uint32_t room; /* bytes that it can take at once */
} feedback;

/* Of a stream that comes in. */
typedef struct {
    uint32_t received, marked, unreported; /* slices */
    uint64_t since, reported_at;           /* when the first unreported one came; the last REPORT */
} incoming;

/* A stream of slices that one rate governs: towards one rank, or to an aggregator's multicast group. */
struct path {
    bool multicast;
    /* bytes per us; share: what its receivers leave it; initial: by the pattern of the collective; goal: where the rate was
     * before the last congestion, or where it probes for more. */
    double rate, share, initial, goal;
    uint32_t room, initial_room; /* bytes that its receivers can take at once */
    bool busy;
    uint64_t idle_since;
    double congestion;            /* DCTCP's alpha */
    uint64_t next_send, round_end;
    uint32_t sequence, acknowledged, backlog, begun; /* slices sent, those settled, slices to send, messages */
    uint64_t progress_at;         /* when `acknowledged` last rose, or there was nothing to acknowledge */
    unsigned calm;                /* rounds without congestion */
    double covered;               /* losses that budgets cover */
    uint32_t rtt;                 /* shortest to the receiver that last reported */
    uint32_t round_delivered, round_congested;
    uint32_t round_rtt;           /* the shortest of the round; UINT32_MAX: none */
    tx_message *messages;
};

typedef struct {
    uint32_t srtt, base[2]; /* smoothed; the shortest of this while and of the one before: UINT32_MAX: none */
    uint64_t base_until;
    feedback feedback[2];   /* its view of our streams: unicast, multicast */
    incoming incoming[2];   /* our view of its streams */
    uint64_t active_until[2];
    bool news[2];           /* it is to be told its share at once */
    rx_message **ring;
    gl_route *routes; /* GL_ROUTES of them, the latest first; NULL: no trace has come back yet */
} peer;

typedef struct control {
    struct control *next;
    uint32_t to, length;
    uint8_t bytes[];
} control;

struct gl_port {
    gl_engine *engines;
    uint64_t receive_bytes;
    double rate, queue_time;         /* bytes per us; us */
    uint64_t next_send;
    double sent_share;               /* of the engine that sent last, before that */
    double weight;                   /* of the jobs that something comes in of */
    double share, told_share;        /* of the streams of a weight of one, bytes per us */
    uint64_t window_start, window_bytes;
};

struct gl_engine {
    gl_config config;
    unsigned ranks, stride, aggregators, aggregator; /* aggregator: own index, or == aggregators if none */
    peer peers[GL_MAX_RANKS];
    path paths[GL_MAX_RANKS + 1]; /* by rank; then multicast */
    unsigned turn;
    gl_port *port, *own_port;
    gl_engine *next_of_port;
    double weight, sent_share; /* of the port; bytes sent for a weight of one */
    bool waits;                /* for the port, to send */
    uint64_t timer;
    double rate;       /* bytes per us */
    double queue_time; /* us that slices may spend in queues on the way */
    uint32_t next_sequence, oldest_sequence;
    tx_message *sent[RING];
    tx_message *waiting, **waiting_tail;
    rx_message *open;
    operation *operations;
    aggregation *aggregations;
    control *controls, **controls_tail;
    control *in_batch;
    gl_event *events, **events_tail;
    unsigned streams; /* that come in at present */
    uint64_t heard;   /* when the last slice came */
    uint64_t memory;
    gl_statistics statistics;
    gl_counts *counts; /* by rank, then multicast; within by loss class, then what has none */
};

static inline bool test_bit(const uint64_t *bits, uint32_t i) { return bits[i >> 6] >> (i & 63) & 1; }
static inline void set_bit(uint64_t *bits, uint32_t i) { bits[i >> 6] |= 1ull << (i & 63); }
static inline void clear_bit(uint64_t *bits, uint32_t i) { bits[i >> 6] &= ~(1ull << (i & 63)); }
static inline size_t words(uint32_t bits) { return (bits + 63) / 64; }

static inline uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static inline uint32_t get32(const uint8_t *p) { return (uint32_t)get16(p) << 16 | get16(p + 2); }
static inline uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }
static inline void put16(uint8_t *p, uint16_t v) { p[0] = (uint8_t)(v >> 8), p[1] = (uint8_t)v; }
static inline void put32(uint8_t *p, uint32_t v) { put16(p, (uint16_t)(v >> 16)), put16(p + 2, (uint16_t)v); }
static inline void put64(uint8_t *p, uint64_t v) { put32(p, (uint32_t)(v >> 32)), put32(p + 4, (uint32_t)v); }

static inline uint64_t key_of(uint32_t step, uint16_t tensor) { return (uint64_t)step << 16 | tensor; }
static inline unsigned type_of(uint8_t encoding) { return encoding & 15; }
static inline unsigned reduction_of(uint8_t encoding) { return encoding >> 4; }
static inline uint32_t budget_of(uint32_t loss_ppm, uint32_t slices) {
    return (uint32_t)((uint64_t)loss_ppm * slices / 1000000);
}
static inline unsigned aggregator_rank(const gl_engine *e, unsigned index) {
    return e->config.servers ? e->config.workers + index : index;
}
static inline uint32_t class_of(const gl_engine *e, uint16_t layer) {
    uint32_t i = 0;
    while (i < e->config.loss_count &&
           !(e->config.losses[i].first_layer <= layer && layer <= e->config.losses[i].last_layer))
        i++;
    return i;
}
/* The most that may be lost of a push or a pull, parts per million. */
static inline uint32_t tolerated(const gl_engine *e, uint32_t loss_class, bool pull) {
    if (loss_class == e->config.loss_count) return 0;
    return pull ? e->config.losses[loss_class].pull : e->config.losses[loss_class].push;
}
static inline gl_counts *counts_of(gl_engine *e, unsigned rank, uint32_t loss_class) {
    return &e->counts[rank * (e->config.loss_count + 1) + loss_class];
}
static inline void due(gl_engine *e, uint64_t at) {
    if (at < e->timer) e->timer = at;
}

/* send.c */
tx_message *tx_new(gl_engine *e, path *p, unsigned targets, uint32_t slices);
void tx_start(gl_engine *e, tx_message *m, uint64_t now);
void tx_ready(gl_engine *e, tx_message *m, uint32_t slice);
void tx_free(tx_message *m);
void on_stop(gl_engine *e, unsigned source, const uint8_t *h, const uint8_t *bits, uint64_t now);
void on_bitmap(gl_engine *e, unsigned source, const uint8_t *h, const uint8_t *bits, uint64_t now);
uint64_t send_timers(gl_engine *e, uint64_t now);
void put_header(const gl_engine *e, uint8_t *h, const tx_message *m, unsigned kind, uint32_t slice);
void send_control(gl_engine *e, unsigned to, unsigned kind, const uint8_t *like, const void *payload, uint16_t length);

tx_message *find_sent(gl_engine *e, uint32_t id);
target *find_target(tx_message *m, unsigned rank);
void arm_probe(gl_engine *e, target *t, uint64_t now);

/* congestion.c */
void on_report(gl_engine *e, unsigned source, const uint8_t *h, const uint8_t *payload, uint64_t now);
void path_begin(gl_engine *e, path *p, uint64_t now);   /* a path that was idle has something to send */
uint64_t path_due(const gl_engine *e, const path *p);   /* when it may next send */
bool path_open(gl_engine *e, path *p, uint64_t now);    /* whether it may send now */
unsigned path_burst(const gl_engine *e, const path *p); /* datagrams of its next batch, at most */
void path_earn(path *p, const tx_message *m);           /* a slice of the first pass is sent */
void path_stopped(gl_engine *e, const tx_message *m, unsigned source, uint64_t now);
uint64_t next_due(double queue_time, uint64_t next, uint64_t now, double bytes, double rate);

/* port.c */
void port_join(gl_port *port, gl_engine *e);
void port_leave(gl_engine *e);
bool port_take(gl_engine *e, uint64_t now); /* whether it may send now; if not, it waits */
void port_sent(gl_engine *e, uint64_t now, double bytes);
void report(gl_engine *e, unsigned source, const uint8_t *h, uint32_t bytes, bool congested, uint64_t now);

/* trace.c */
void trace_send(gl_engine *e, const tx_message *m, uint32_t slice);
void on_trace(gl_engine *e, unsigned source, const uint8_t *h, uint32_t length);

/* tagging.c */
uint8_t tos_of(const gl_engine *e, const uint8_t *h);

/* receive.c */
uint64_t receive_timers(gl_engine *e, uint64_t now);
void rx_free(gl_engine *e, rx_message *m);
void rx_release_buffer(gl_engine *e, rx_message *m);

/* aggregate.c */
operation *find_operation(gl_engine *e, uint32_t step, uint16_t tensor);
aggregation *find_aggregation(gl_engine *e, uint32_t step, uint16_t tensor);
aggregation *aggregation_new(gl_engine *e, uint32_t step, uint16_t tensor, uint32_t slices, uint8_t encoding, uint32_t loss_class);
void resolve(gl_engine *e, aggregation *a, uint32_t slice, uint64_t now);
void shard_done(gl_engine *e, operation *o);
void push_released(gl_engine *e, tx_message *m, const uint8_t *received);
void pull_released(gl_engine *e, tx_message *m);
void mismatch(gl_engine *e, uint32_t step, uint16_t tensor, unsigned source, uint32_t slices);
void operation_free(gl_engine *e, operation *o);
void aggregation_free(gl_engine *e, aggregation *a);

/* reduce.c */
void reduce_slice(uint8_t *result, const uint8_t *const *sources, unsigned count, unsigned divisor, uint32_t bytes,
                  unsigned element_type);

#endif
