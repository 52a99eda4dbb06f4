/* SPDX-License-Identifier: Apache-2.0
 * What the C code and Python share. Read by the compiler and by cffi alike, so: plain declarations only. */

/* Limits. */
enum {
    GL_QUEUES = 8,         /* strict-priority queues per port, 7 is served first */
    GL_PORTS = 512,        /* port numbers are 9 bits */
    GL_DROP_PORT = 511,
    GL_HEADROOM = 512,     /* bytes in front of a received frame, for headers that the program adds */
    GL_GROUPS = 65536
};

/* ---- State of a program: tables, counters, meters, registers, multicast groups ---- */

typedef struct gl_lock gl_lock;

typedef struct {
    uint64_t packets;
    uint64_t bytes;
} gl_counter;

/* A table entry: an action with its arguments. The key is in the table. */
typedef struct {
    uint32_t action;       /* position in the table's list of actions */
    int32_t priority;
    gl_counter counter;
    uint64_t hash;         /* of the key, in a hash table */
    uint64_t arguments[];
} gl_entry;

enum { GL_TABLE_EXACT = 0, GL_TABLE_LPM = 1, GL_TABLE_LIST = 2 };

typedef struct gl_table gl_table;

/* Two-rate three-colour meter (RFC 2698), colour-blind. Rates in units per second, bursts in units. */
typedef struct {
    uint64_t cir, cbs, pir, pbs;
    uint32_t configured;   /* 0: every packet is green */
} gl_meter_config;

typedef struct {
    uint16_t port;
    uint16_t instance;
} gl_replica;

typedef struct gl_state gl_state;

gl_lock *gl_lock_new(void);
void gl_lock_free(gl_lock *lock);

gl_state *gl_state_new(gl_lock *lock, uint32_t tables, uint32_t counters, uint32_t meters, uint32_t registers);
void gl_state_free(gl_state *state);
/* These return 0, or -1 for want of memory. */
int gl_state_table(gl_state *state, uint32_t index, uint32_t kind, uint32_t words, uint32_t max_arguments);
int gl_state_counter(gl_state *state, uint32_t index, uint32_t size);
int gl_state_meter(gl_state *state, uint32_t index, uint32_t size, uint32_t counts_bytes);
int gl_state_register(gl_state *state, uint32_t index, uint32_t size);

/* Adds an entry, and returns it, or NULL for want of memory. `operand` is a mask or an upper end per key word in a list
 * (priority: higher first), unused in an exact table; in an LPM table the last word is the prefix and `prefix` its length. */
gl_entry *gl_table_insert(gl_state *state, uint32_t table, const uint64_t *key, const uint64_t *operand,
                          uint32_t prefix, uint32_t prefix_width, int32_t priority, uint32_t action,
                          uint32_t arguments, const uint64_t *values);
void gl_entry_set(gl_state *state, gl_entry *entry, uint32_t action, uint32_t arguments,
                  const uint64_t *values);
void gl_table_remove(gl_state *state, uint32_t table, gl_entry *entry);
/* The entry that a miss takes; never NULL. */
gl_entry *gl_table_default(gl_state *state, uint32_t table);

/* Cells: `count` of them from `first`; the caller keeps to the array's size. */
void gl_counters_read(gl_state *state, uint32_t index, uint32_t first, uint32_t count, gl_counter *out);
void gl_counters_write(gl_state *state, uint32_t index, uint32_t first, uint32_t count, gl_counter value);
void gl_entry_counter_read(gl_state *state, const gl_entry *entry, gl_counter *out);
void gl_entry_counter_write(gl_state *state, gl_entry *entry, gl_counter value);
void gl_meter_write(gl_state *state, uint32_t index, uint32_t cell, gl_meter_config config);
void gl_registers_read(gl_state *state, uint32_t index, uint32_t first, uint32_t count, uint64_t *out);
void gl_registers_write(gl_state *state, uint32_t index, uint32_t first, uint32_t count, uint64_t value);
/* Returns 0, or -1 for want of memory. No replicas: the group does not exist. */
int gl_group_set(gl_state *state, uint32_t group, uint32_t count, const gl_replica *replicas);

/* ---- Packets ---- */

typedef struct gl_packet gl_packet;
typedef struct gl_host gl_host;

/* The program: parses the packet, runs the pipelines, and hands what leaves, and what is left over, to the host. */
typedef void gl_process(gl_state *state, gl_packet *packet, uint64_t now, gl_host *host);

/* ---- Without ports: one packet in, its copies out ---- */

typedef struct {
    uint32_t port;
    uint32_t queue;
    uint32_t length;
    uint32_t offset;       /* of the frame in the output buffer */
} gl_sent;

/* Returns the number of packets that left, at most `capacity` of them kept; -1 for want of memory or output space. */
int gl_process_one(gl_process *process, gl_state *state, uint32_t port, const uint8_t *frame, uint32_t length,
                   uint64_t now, gl_sent *sent, uint32_t capacity, uint8_t *out, uint32_t out_size);

/* ---- Ports ---- */

/* What a link does to packets. Probabilities 0..1; times in ns. */
typedef struct {
    double loss;
    double reorder;          /* share of packets held back by `reorder_delay` more */
    uint64_t delay;
    uint64_t jitter;         /* uniform in [0, jitter) on top of the delay */
    uint64_t reorder_delay;
} gl_impairment;

typedef struct {
    uint64_t rate;           /* bit/s towards the host; 0: no limit */
    uint64_t buffer;         /* bytes that the port's queues share */
    gl_impairment tx, rx;
} gl_port_config;

typedef struct {
    uint64_t packets, bytes;
} gl_traffic;

typedef struct {
    uint64_t lost, delayed, reordered;
} gl_impaired;

typedef struct {
    gl_traffic rx, tx;
    gl_traffic enqueued[8], tail_dropped[8];
    uint64_t depth[8];       /* bytes waiting now */
    uint64_t depth_total, depth_max;
    gl_impaired tx_impaired, rx_impaired;
    uint64_t oversize;       /* frames longer than the MTU: offloads left on */
    uint64_t no_checksum;    /* frames whose checksum the sender left to hardware: offloads left on */
    uint64_t program_drops;  /* frames from this port that the program dropped */
    uint64_t no_port;        /* frames from this port that the program sent to a port that does not exist */
    uint64_t no_memory;      /* frames lost for want of packet buffers */
    uint64_t tx_errors;      /* frames that the interface refused */
    uint32_t up;
} gl_port_stats;

enum { GL_EVENT_OVERSIZE = 1, GL_EVENT_NO_CHECKSUM = 2, GL_EVENT_DOWN = 3, GL_EVENT_UP = 4, GL_EVENT_TX_ERROR = 5 };

/* Written to the event descriptor, for the log. */
typedef struct {
    uint32_t kind;
    uint32_t port;
    int32_t error;
    uint32_t length;
} gl_event;

typedef struct gl_dataplane gl_dataplane;

/* `frame_size` is the longest frame of any port in bytes; `memory` bounds the packet buffers in bytes; events are written
 * to `event_fd` (non-blocking). NULL for want of memory or descriptors. */
gl_dataplane *gl_dataplane_new(gl_lock *lock, uint32_t frame_size, uint64_t memory, uint64_t seed, int event_fd);
void gl_dataplane_free(gl_dataplane *dp);
/* `fd` is a bound AF_PACKET socket, which stays the caller's. Before gl_run only. Returns 0, or -1 if the number is taken. */
int gl_port_add(gl_dataplane *dp, uint32_t number, int fd, uint32_t mtu, gl_port_config config);
void gl_port_configure(gl_dataplane *dp, uint32_t number, gl_port_config config);
void gl_port_statistics(gl_dataplane *dp, uint32_t number, gl_port_stats *out);
void gl_port_clear(gl_dataplane *dp, uint32_t number);
/* NULL: packets are dropped until there is a program. */
void gl_dataplane_program(gl_dataplane *dp, gl_process *process, gl_state *state);
/* Forwards until gl_stop, which may be called from any thread. Returns 0, or an errno. */
int gl_run(gl_dataplane *dp);
void gl_stop(gl_dataplane *dp);
