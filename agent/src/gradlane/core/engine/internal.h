/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the engine share: collective.c (which nodes an operation has), operation.c (what they do), reduce.c,
 * pool.c and heap.c; send.c (messages on their way), repair.c (PROBE, BITMAP, STOP), congestion.c (a path's rate);
 * receive.c (validation, completion), port.c (the receiver's port); trace.c and tagging.c.
 */
#ifndef GRADLANE_INTERNAL_H
#define GRADLANE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

enum {
    RING = 4096,             /* messages of one source that are remembered, so that a late PROBE gets its STOP */
    FRAME_OVERHEAD = 42,     /* bytes of Ethernet, IPv4 and UDP headers */
    REPORT_EVERY = 8,        /* slices, but neither more often nor, if any came, more seldom than: */
    REPORT_LEAST = 100,      /* us */
    REPORT_MOST = 1000,      /* us */
    STREAM_IDLE = 6000,      /* us without a slice after which a stream counts as over */
    SHARE_WINDOW = 2000,     /* us over which a port's use is measured */
    INITIAL_RTT = 1000,      /* us */
    PROBE_WAIT_MAX = 100000, /* us */
    REORDER_MIN = 300,       /* us */
    BACKOFF_MAX = 3,         /* doublings of the time from one BITMAP to the next */
    PATIENCE = 4,            /* of the shortest round trip: one part may pass before arrivals are looked at */
    PATIENCE_MIN = 20, PATIENCE_MAX = 600, /* us; from batch to batch it is 500 (BURST) at most */
    OPERATIONS = 1024,       /* buckets, a power of two */
    GUARANTEED = 16,         /* slices of each contribution to a node that are kept however short memory is */
    MEMORY_WAIT = 1000,      /* us until a message that there was no memory for is looked at again */
};

typedef struct operation operation;
typedef struct node node;
typedef struct tx_message tx_message;
typedef struct rx_message rx_message;
typedef struct path path;

typedef struct {
    uint64_t key;
    uint32_t place; /* in its heap, from 1; 0: in none */
} heap_item;

typedef struct {
    heap_item **items; /* the one with the least key first */
    uint32_t count, space;
} heap;

/* A moment at which a message is looked at: of one that is sent (a target), or one that is received. */
typedef struct {
    heap_item item;
    bool received;
} timer;

/* A contribution that waits, or a result that is sent: with its header in one piece. */
typedef struct {
    uint8_t header[GL_HEADER]; /* of a contribution: its length only */
    uint8_t bytes[];
} slot;

typedef struct slab {
    struct slab *next;
} slab;

/* All that one rank sends another in one phase (pushes or pulls) of an operation is a message: the slices of some nodes, which
 * both ends list in the same order. */
typedef struct {
    node *node;
    uint32_t start; /* the node's first slice in the message */
} segment;

typedef struct link {
    struct link *next; /* of the operation */
    uint16_t rank;     /* the other end; the number of ranks: the multicast group */
    uint16_t meeting;  /* streams that meet at the busiest port on the way, this one included */
    bool pull, exact;
    uint32_t slices;
    unsigned count;
    segment *segments;
    tx_message *sent;     /* NULL: it is over */
    rx_message *received; /* NULL: nothing has come yet */
} link;

typedef struct {
    link *link;
    uint32_t start; /* the node's first slice in its message */
} joint;

/* What this rank does with a range of an operation's slices: it reduces what it receives from `from` together with its `own`
 * contribution; the result goes to `out` and is sent on to `to`. Without `from`, `own` is sent as it is. */
struct node {
    operation *operation;
    uint32_t first, slices; /* of the operation's slices, for layers and magnitudes */
    uint32_t last_length;   /* bytes of the last one; 0: a server that has not seen it yet */
    const uint8_t *own, *instead; /* instead: of a result that is lost; NULL: zeros */
    uint8_t *out;
    unsigned divisor;       /* of the result; 0: the number of contributions that arrived */
    unsigned from_count, to_count;
    joint *from, *to;       /* from: by rank */
    uint16_t *awaited;      /* by slice: contributions that have neither come nor been given up; NULL: there is one */
    slot **results;         /* by slice: what is sent on; NULL: nothing is */
    uint64_t *empty;        /* slices that nobody contributed to: sent on without payload */
    uint64_t bytes;
    uint32_t done, floor;   /* slices; all below `floor` are done */
    unsigned unsent;        /* messages that have not been stopped */
};

/* A collective operation as this rank takes part in it: as a worker from its submission on, as a server from its first
 * datagram on. What comes before a worker's submission is kept in `early`. */
struct operation {
    operation *next; /* of its bucket */
    uint32_t step;
    uint16_t tensor;
    uint8_t encoding;
    bool planned, local, told; /* local: a worker's; told: it is COMPLETED */
    uint32_t loss_class, push_loss, pull_loss;
    uint64_t since;
    uint16_t *layers;    /* by slice */
    uint8_t *magnitudes; /* NULL: all 255 */
    node **nodes;
    unsigned node_count;
    link *outgoing, *incoming;
    rx_message *early;
    uint32_t open;       /* nodes that are not done, and messages that read from `own` */
    uint32_t unstopped;  /* messages */
    uint64_t mismatched[GL_MAX_RANKS / 64]; /* ranks that disagree about its shape, as has been told */
};

typedef struct {
    timer probe;           /* set when the first pass is over */
    heap_item turn;        /* among those of its path that have something to repair */
    tx_message *message;
    uint16_t rank;
    bool stopped;
    uint32_t repairs, cursor;
    uint64_t *todo;        /* slices to repair; NULL before the first BITMAP */
    uint32_t *repaired_at, *repair_sequence;
    uint32_t probe_wait;
} target;

struct tx_message {
    heap_item turn;        /* among those of its path that have something to send; before, among those without a number */
    path *path;
    link *link;
    operation *operation;
    uint32_t id, slices, budget, loss_class;
    uint64_t order;        /* of its start */
    uint8_t header[GL_HEADER]; /* what is the same for all slices */
    bool started, active, traced; /* active: it has a number */
    bool reads_own;        /* it sends slices of `in` */
    uint16_t *queue;       /* order in which slices became ready; NULL: 0, 1, 2 ... */
    uint32_t ready, sent;
    uint32_t *sent_at, *path_sequence, last_sequence;
    unsigned targets, stopped;
    target target[];
};

struct rx_message {
    timer check;
    operation *operation;  /* NULL: it is over */
    link *link;            /* NULL: the operation does not know it yet */
    rx_message *next_early;
    uint32_t id, step, slices, budget, received;
    uint32_t reach;          /* one more than the highest slice that arrived */
    uint32_t trimmed, ahead; /* slices of which only the header came; those of them from `reach` on */
    uint16_t tensor, source, layer; /* layer: of some slice of it */
    uint8_t flags, encoding;
    uint32_t loss_class;
    bool complete, end_seen, refused; /* refused: there was no memory for some slice */
    uint8_t in_vain; /* BITMAPs since something that one asked for came */
    uint64_t *arrived;
    uint64_t *cut;   /* the trimmed ones; NULL: none yet */
    slot **kept;     /* by slice: contributions that wait for others; NULL: none yet */
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
    /* bytes per us; share: what its receivers leave it; goal: where the rate was before the last congestion, or where it
     * probes for more. */
    double rate, share, goal;
    uint32_t room; /* bytes that its receivers can take at once */
    bool busy;
    uint64_t idle_since, rested; /* rested: when it last had sent nothing for as long as a queue takes to drain */
    double congestion;            /* DCTCP's alpha */
    uint64_t next_send, round_end;
    uint32_t sequence, acknowledged, backlog, begun; /* slices sent, those settled, slices to send, messages */
    uint64_t progress_at;         /* when `acknowledged` last rose, or there was nothing to acknowledge */
    double last_queue;            /* that of the round before */
    double calm;                  /* rounds without congestion */
    bool competes;                /* with flows that only losses slow down */
    uint32_t late;                /* rounds with too long a queue, up to STANDING; those with a short one are taken off */
    double least, most;           /* queues of the latest of them, us */
    uint32_t backed_off;          /* the first slice after the last decrease beside flows that only losses slow down */
    double covered;               /* losses that budgets cover */
    uint32_t rtt;                 /* shortest to the receiver that last reported */
    uint32_t round_delivered, round_marked, round_lost;
    uint32_t round_queue;         /* us, the shortest of the round; UINT32_MAX: none */
    heap messages, repairs;       /* that have something to send: by layer, then by age; by age */
};

typedef struct {
    uint32_t srtt, base[2]; /* smoothed; the shortest of this BASE_LIFE and of the one before: UINT32_MAX: none */
    uint32_t there[2];      /* the same of the way there alone, by its clock against ours */
    uint64_t base_until;
    feedback feedback[2];   /* its view of our streams: unicast, multicast */
    incoming incoming[2];   /* our view of its streams */
    uint64_t active_until[2];
    bool news[2];           /* it is to be told its share at once */
    uint64_t heard;         /* when the last datagram with the job's token came; 0: none yet */
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
    unsigned ranks, stride;
    peer peers[GL_MAX_RANKS];
    path paths[GL_MAX_RANKS + 1]; /* by rank; then multicast */
    unsigned turn;
    gl_port *port, *own_port;
    gl_engine *next_of_port;
    double weight, sent_share; /* of the port; bytes sent for a weight of one */
    bool waits;                /* for the port, to send */
    double rate;       /* bytes per us */
    double queue_time; /* us that slices may spend in queues on the way */
    heap timers;
    uint32_t next_sequence, oldest_sequence, oldest_tolerant; /* of messages in flight; of those of them with a budget */
    uint64_t order;    /* counts what is queued */
    tx_message *sent[RING];
    heap waiting[2];   /* messages without a number: exact ones, those with a budget */
    uint32_t unstopped; /* messages that were started */
    operation *operations[OPERATIONS];
    control *controls, **controls_tail;
    gl_event *events, **events_tail;
    unsigned streams; /* that come in at present */
    uint64_t heard;   /* when the last slice came */
    slot **unused; /* those that were used last at the end */
    unsigned unused_count, slots;
    slab *slabs;
    uint64_t kept;    /* bytes of contributions that wait */
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

static inline unsigned type_of(uint8_t encoding) { return encoding & 15; }
static inline unsigned reduction_of(uint8_t encoding) { return encoding >> 4; }
static inline uint32_t budget_of(uint32_t loss_ppm, uint32_t slices) {
    return (uint32_t)((uint64_t)loss_ppm * slices / 1000000);
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
#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

static inline bool is_server(const gl_engine *e) { return e->config.rank >= e->config.workers; }
static inline bool has_memory(const gl_engine *e, uint64_t slices) {
    return e->kept + slices * e->config.slice_bytes <= e->config.memory;
}
static inline bool is_set(const timer *t) { return t->item.place; }

/* Where a slice of a message belongs. */
static inline const segment *find_segment(const link *l, uint32_t slice) {
    unsigned low = 0, high = l->count;
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        *(l->segments[middle].start <= slice ? &low : &high) = middle;
    }
    return &l->segments[low];
}

/* heap.c */
void heap_put(heap *h, heap_item *item, uint64_t key); /* or moves it */
void heap_remove(heap *h, heap_item *item);            /* if it is in there */
static inline heap_item *heap_first(const heap *h) { return h->count ? h->items[0] : NULL; }
static inline void timer_set(gl_engine *e, timer *t, uint64_t at) { heap_put(&e->timers, &t->item, at); }
static inline void timer_stop(gl_engine *e, timer *t) { heap_remove(&e->timers, &t->item); }

/* pool.c */
slot *slot_new(gl_engine *e);
void slot_free(gl_engine *e, slot *s);
void pool_free(gl_engine *e);

/* send.c */
tx_message *tx_new(gl_engine *e, operation *o, link *l);
void tx_begin(gl_engine *e, tx_message *m); /* with what it has of its own */
void tx_ready(gl_engine *e, tx_message *m, uint32_t slice); /* may be sent now; starts the message */
void tx_free(gl_engine *e, tx_message *m);
void put_header(const gl_engine *e, uint8_t *h, const tx_message *m, unsigned kind, uint32_t slice);
void send_control(gl_engine *e, unsigned to, unsigned kind, const uint8_t *like, const void *payload, uint16_t length);
tx_message *find_sent(gl_engine *e, uint32_t id);
target *find_target(tx_message *m, unsigned rank);
void tx_stopped(gl_engine *e, tx_message *m, const uint8_t *received); /* by all its targets */
unsigned magnitude_of(const gl_engine *e, const tx_message *m, uint32_t slice);

/* repair.c */
void on_stop(gl_engine *e, unsigned source, const uint8_t *h, const uint8_t *bits, uint64_t now);
void on_bitmap(gl_engine *e, unsigned source, const uint8_t *h, const uint8_t *bits, uint64_t now);
void arm_probe(gl_engine *e, target *t, uint64_t now);
void probe(gl_engine *e, target *t, uint64_t now);

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
void expect_streams(gl_engine *e, const rx_message *first, uint64_t now); /* those of its phase, as it has come */
void port_spend(gl_port *port, uint64_t now, double bytes); /* sent without waiting: the next ones wait longer */
void report(gl_engine *e, unsigned source, const uint8_t *h, uint32_t bytes, bool congested, uint64_t now);

/* trace.c */
void trace_send(gl_engine *e, const tx_message *m, uint32_t slice);
void on_trace(gl_engine *e, unsigned source, const uint8_t *h, uint32_t length);

/* tagging.c */
uint8_t tos_of(const gl_engine *e, const uint8_t *h);

/* receive.c */
void rx_free(gl_engine *e, rx_message *m);
void check(gl_engine *e, rx_message *m, uint64_t now);
void resume(gl_engine *e, rx_message *m, uint64_t now); /* there may be room now for what there was none */

/* operation.c */
operation *find_operation(gl_engine *e, uint32_t step, uint16_t tensor);
operation *operation_new(uint32_t step, uint16_t tensor); /* in no bucket yet; NULL: memory is out */
void operation_insert(gl_engine *e, operation *o);
void operation_replace(gl_engine *e, operation *early, operation *o); /* takes over what has come */
void operation_free(gl_engine *e, operation *o);
bool operation_begin(gl_engine *e, operation *o, uint64_t now);   /* that has its nodes; false: memory is out */
bool operation_attach(gl_engine *e, operation *o, rx_message *m); /* false: it does not fit, which is told */
void message_detach(gl_engine *e, rx_message *m);
/* Whether a slice may be kept, or need not be, where `ahead` others are to be kept before it. */
bool has_room(const gl_engine *e, const rx_message *m, uint32_t slice, uint64_t ahead);
uint32_t expected_length(const gl_engine *e, const rx_message *m, uint32_t slice); /* 0: not known yet */
/* Both may end the operation, and the message's part in it. */
void slice_arrived(gl_engine *e, rx_message *m, uint32_t slice, const uint8_t *payload, uint32_t length);
void slice_lost(gl_engine *e, rx_message *m, uint32_t slice);
void message_stopped(gl_engine *e, tx_message *m, const uint8_t *received);

/* collective.c */
operation *operation_of_server(gl_engine *e, const rx_message *m, uint64_t now); /* NULL: it is none, or memory is out */

/* reduce.c */
void reduce_slice(uint8_t *result, const uint8_t *const *sources, unsigned count, unsigned reduction, unsigned divisor,
                  uint32_t bytes, unsigned element_type);

#endif
