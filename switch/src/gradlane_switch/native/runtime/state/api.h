/* SPDX-License-Identifier: Apache-2.0
 * What the C code and Python share. Read by the compiler and by cffi alike, so: plain declarations only. */

/* Limits. */
enum {
    GL_QUEUES = 8,         /* queues per port; with strict priority 7 is served first */
    GL_PORTS = 512,        /* port numbers are 9 bits */
    GL_DROP_PORT = 511,
    GL_HEADROOM = 2048,    /* bytes in front of a received frame, for headers that the program adds */
    GL_GROUPS = 65536,
    GL_SESSIONS = 32768,   /* clone sessions */
    GL_LONGEST_PREFIX = 2048,
    GL_PIECE = 8,          /* bits of a list's key that its index looks up together */
    GL_INDEXED = 64        /* pieces of a key that an index knows, at most */
};

/* ---- State of a program: tables, counters, meters, registers, multicast groups ---- */

typedef struct gl_lock gl_lock;

typedef struct {
    uint64_t packets;
    uint64_t bytes;
} gl_counter;

/* What entries with an action profile choose their action from. */
typedef struct gl_choice gl_choice;
typedef struct gl_meter gl_meter;

/* A table entry: an action with its arguments. The key is in the table. */
typedef struct {
    uint32_t action;       /* position in the table's list of actions */
    int32_t priority;
    gl_counter counter;
    uint64_t place;        /* in a list the row; GL_NOWHERE: in no table */
    gl_choice *choice;     /* NULL: the action is the entry's own */
    gl_meter *meter;       /* NULL: the table has no direct meter */
    uint64_t last_hit;     /* ns, in a table with idle timeouts; 0: never */
    uint64_t arguments[];
} gl_entry;

enum { GL_TABLE_EXACT = 0, GL_TABLE_LPM = 1, GL_TABLE_LIST = 2 };

/* How a table's keys are stored and compared: see table.h. */
typedef struct {
    uint32_t kind;
    uint32_t words;          /* of the key; an LPM table's key ends with the prefix length */
    uint32_t argument_words; /* of an entry, at most */
    uint32_t prefix_width;   /* bits of an LPM table's prefix field */
    uint32_t metered;        /* entries have a meter */
    uint32_t indexed;        /* pieces of a list's key that its index knows */
    uint64_t ranges, continued;
    uint16_t pieces[64];     /* those pieces, counted from the lowest bits of the first word */
} gl_table_shape;

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

/* What a program asked for in vain. */
typedef struct {
    uint64_t out_of_range;   /* accesses beyond the end of a counter, meter or register */
    uint64_t endless;        /* packets that were resubmitted, recirculated or cloned too often */
    uint64_t mail;           /* messages to the controller that found no room */
    uint64_t log;            /* messages to the log that were too many */
    uint64_t assertions;     /* packets for which an assertion did not hold */
} gl_losses;

enum { GL_MAIL_DIGEST = 0, GL_MAIL_PACKET = 1, GL_MAIL_LOG = 2 };

typedef struct {
    uint32_t kind;
    uint32_t id;             /* of the digest or the message, or the port where the packet came in */
    uint32_t length;
    uint64_t time;           /* ns */
} gl_mail_head;

gl_lock *gl_lock_new(void);
void gl_lock_free(gl_lock *lock);

gl_state *gl_state_new(gl_lock *lock, uint32_t tables, uint32_t counters, uint32_t meters, uint32_t registers);
void gl_state_free(gl_state *state);
/* These return 0, or -1 for want of memory. */
int gl_state_table(gl_state *state, uint32_t index, const gl_table_shape *shape);
int gl_state_counter(gl_state *state, uint32_t index, uint32_t size);
int gl_state_meter(gl_state *state, uint32_t index, uint32_t size, uint32_t counts_bytes);
/* `words` of 64 bits make a cell, the lowest first. */
int gl_state_register(gl_state *state, uint32_t index, uint32_t size, uint32_t words);

/* An entry for a table, which is not there yet; NULL for want of memory. The key has `words` of the table's shape.
 * `operand` is a mask or an upper end per key word in a list (priority: higher first), unused in other tables. */
gl_entry *gl_entry_new(gl_state *state, uint32_t table, const uint64_t *key, const uint64_t *operand, int32_t priority,
                       uint32_t action, uint32_t arguments, const uint64_t *values, gl_choice *choice);
/* Makes room for entries to be added. Returns 0, or -1 for want of memory. */
int gl_table_reserve(gl_state *state, uint32_t table, uint32_t count);
/* The same. */
int gl_table_add(gl_state *state, uint32_t table, gl_entry *entry);
void gl_entry_set(gl_state *state, gl_entry *entry, uint32_t action, uint32_t arguments,
                  const uint64_t *values, gl_choice *choice);
/* Frees an entry, and takes it out of the table if it is there. */
void gl_table_remove(gl_state *state, uint32_t table, gl_entry *entry);
/* The entry that a miss takes; never NULL. */
gl_entry *gl_table_default(gl_state *state, uint32_t table);

/* Cells: `count` of them from `first`; the caller keeps to the array's size. */
void gl_counters_read(gl_state *state, uint32_t index, uint32_t first, uint32_t count, gl_counter *out);
void gl_counters_write(gl_state *state, uint32_t index, uint32_t first, uint32_t count, gl_counter value);
void gl_entry_counter_read(gl_state *state, const gl_entry *entry, gl_counter *out);
void gl_entry_counter_write(gl_state *state, gl_entry *entry, gl_counter value);
void gl_meter_write(gl_state *state, uint32_t index, uint32_t cell, gl_meter_config config);
void gl_entry_meter_write(gl_state *state, gl_entry *entry, gl_meter_config config);
/* Packets and bytes by colour, three counters a meter; and zeroes them. */
void gl_meters_read(gl_state *state, uint32_t index, uint32_t first, uint32_t count, gl_counter *out);
void gl_meters_clear(gl_state *state, uint32_t index, uint32_t first, uint32_t count);
void gl_entry_meter_read(gl_state *state, const gl_entry *entry, gl_counter *out);
void gl_entry_meter_clear(gl_state *state, gl_entry *entry);
void gl_registers_read(gl_state *state, uint32_t index, uint32_t first, uint32_t count, uint64_t *out);
/* `value` is that of every cell. */
void gl_registers_write(gl_state *state, uint32_t index, uint32_t first, uint32_t count, const uint64_t *value);
/* A member of an action profile: an action that no table holds. NULL for want of memory. */
gl_entry *gl_member_new(uint32_t max_arguments);
void gl_member_free(gl_entry *member);
gl_choice *gl_choice_new(void);
/* The same member may be there several times. `ports`: what each of them depends on, GL_PORTS for none, or NULL.
 * Returns 0, or -1 for want of memory, which none needs. */
int gl_choice_set(gl_state *state, gl_choice *choice, uint32_t count, gl_entry **members, const uint64_t *ports);
/* Members that depend on a port are left out while it is down. At first every port is up. */
void gl_port_state(gl_state *state, uint32_t port, uint32_t up);
/* No entry may refer to it any more, and no member of it may depend on a port, unless the state goes as well. */
void gl_choice_free(gl_choice *choice);
/* Returns 0, or -1 for want of memory. No replicas: the group does not exist. */
int gl_group_set(gl_state *state, uint32_t group, uint32_t count, const gl_replica *replicas);
/* The same for a clone session; its copies leave with at most `limit` bytes, and with a priority unless that is 0. */
int gl_session_set(gl_state *state, uint32_t session, uint32_t count, const gl_replica *replicas, uint32_t limit,
                   uint32_t priority);
void gl_losses_read(gl_state *state, gl_losses *out);
/* Packets to this port go to the controller; GL_PORTS is none. `event_fd` is an eventfd that gets 1 when there is mail. */
void gl_controller(gl_state *state, uint32_t cpu_port, int event_fd);
/* Takes the oldest message. Returns 1, 0 if there is none, or -1 if it is longer than `size`: then it stays. */
int gl_mail_take(gl_state *state, gl_mail_head *head, uint8_t *bytes, uint32_t size);

/* ---- Several of these changes between two packets ---- */

enum {
    GL_CHANGE_ADD = 1, GL_CHANGE_REMOVE = 2, GL_CHANGE_SET = 3, GL_CHANGE_CHOICE = 4, GL_CHANGE_ENTRY_COUNTER = 5,
    GL_CHANGE_ENTRY_METER = 6, GL_CHANGE_ENTRY_METER_CLEAR = 7, GL_CHANGE_COUNTERS = 8, GL_CHANGE_REGISTERS = 9,
    GL_CHANGE_METER = 10, GL_CHANGE_METERS_CLEAR = 11, GL_CHANGE_GROUP = 12, GL_CHANGE_SESSION = 13
};

/* A call of one of the functions above, by kind, with its arguments. */
typedef struct {
    uint32_t kind;
    uint32_t index;          /* of the table, array, group or session; or the action */
    uint32_t first, count;
    uint32_t limit, priority;
    void *target;            /* an entry or a choice */
    void *other;             /* a choice, members or replicas */
    const uint64_t *values;
    gl_counter counter;
    gl_meter_config meter;
} gl_change;

/* Returns 0, or -1 if memory was wanting for one of them; then the others have been made. */
int gl_change_all(gl_state *state, uint32_t count, const gl_change *changes);

/* ---- Packets ---- */

typedef struct gl_packet gl_packet;
typedef struct gl_host gl_host;

/* The program: parses the packet that came in, or goes on with one that has left its queue (`kept` is not NULL), runs
 * the pipelines, and hands what leaves, and what is left over, to the host. It does not free what was kept. */
typedef void gl_process(gl_state *state, gl_packet *packet, uint64_t now, gl_host *host);

/* ---- Tracing ---- */

/* Events of the packets that are traced, each a word of (kind << 32 | number of words that follow), and those words. */
typedef struct {
    uint64_t *words;
    uint32_t capacity, used;
    uint32_t lost;         /* events that found no room */
} gl_tracer;

enum {
    GL_TRACE_PACKET = 1,     /* number, port, time in ns, length; then its first bytes */
    GL_TRACE_STATE = 2,      /* parser state */
    GL_TRACE_PARSED = 3,     /* error, bytes consumed */
    GL_TRACE_BRANCH = 4,     /* pipeline, node, whether the condition holds */
    GL_TRACE_TABLE = 5,      /* table; then the words of the key */
    GL_TRACE_ENTRY = 15,     /* whether the table hit, address of the entry */
    GL_TRACE_ACTION = 6,     /* action; then the words of its data */
    GL_TRACE_EGRESS = 7,     /* port: the egress pipeline begins */
    GL_TRACE_CLONE = 8,      /* session, copies */
    GL_TRACE_GROUP = 9,      /* multicast group, copies */
    GL_TRACE_AGAIN = 10,     /* 0 resubmitted, 1 recirculated */
    GL_TRACE_DIGEST = 11,    /* digest */
    GL_TRACE_DROPPED = 12,   /* reason, see below; port, queue */
    GL_TRACE_QUEUED = 13,    /* port, queue, length, bytes in the queue, bytes at the port */
    GL_TRACE_CONTROLLER = 14, /* length: a packet-in */
    GL_TRACE_SENT = 16,      /* port, queue, length */
    GL_TRACE_DEQUEUED = 17,  /* number, port, queue, ns that it waited: what follows is of that packet */
    GL_TRACE_FLUSHED = 18    /* number, reason as of DROPPED, port, queue: another packet that waited */
};

enum {
    GL_DROP_INGRESS = 0, GL_DROP_EGRESS = 1, GL_DROP_NO_GROUP = 2, GL_DROP_NO_PORT = 3, GL_DROP_RUNT = 4,
    GL_DROP_TAIL = 5, GL_DROP_DOWN = 6, GL_DROP_ENDLESS = 7,
    GL_DROP_ASSERT = 8, GL_DROP_PUSHED_OUT = 9, GL_DROP_NO_MEMORY = 10, GL_DROP_TX_LINK = 11, GL_DROP_RX_LINK = 12
};

/* ---- Without ports: one packet in, its copies out ---- */

typedef struct {
    uint32_t port;
    uint32_t queue;
    uint32_t length;
    uint32_t offset;       /* of the frame in the output buffer */
} gl_sent;

/* Returns the number of packets that left, at most `capacity` of them kept; -1 for want of memory or output space.
 * `tracer` may be NULL. */
int gl_process_one(gl_process *process, gl_state *state, uint32_t port, const uint8_t *frame, uint32_t length,
                   uint64_t now, gl_sent *sent, uint32_t capacity, uint8_t *out, uint32_t out_size, gl_tracer *tracer);

/* ---- Ports ---- */

/* Gilbert-Elliott: per packet, the chances to go from the good state to the bad one and back, and of loss in each. */
typedef struct {
    double enter, leave, bad, good;
} gl_burst_loss;

/* What a link does to packets. Probabilities 0..1; times in ns. */
typedef struct {
    double loss;
    gl_burst_loss burst_loss;
    double reorder;          /* share of packets held back by `reorder_delay` more */
    double duplicate;
    double corrupt;          /* share of packets that get one wrong bit */
    uint64_t delay;
    uint64_t jitter;         /* uniform in [0, jitter) on top of the delay */
    uint64_t reorder_delay;
} gl_impairment;

typedef struct {
    uint64_t rate;           /* bit/s towards the host; 0: no limit */
    uint64_t buffer;         /* bytes that the port's queues share */
    uint64_t ecn;            /* bytes in a packet's queue above which it is marked; 0: never */
    uint32_t weights[8];     /* of deficit round robin, by queue; all 0: strict priority */
    uint32_t up;
    gl_impairment tx, rx;
} gl_port_config;

typedef struct {
    uint64_t packets, bytes;
} gl_traffic;

typedef struct {
    gl_traffic lost, duplicated;
    uint64_t corrupted, delayed, reordered;
    uint64_t in_flight;      /* packets on the link now, or just come from it */
} gl_impaired;

/* offered = enqueued + tail_dropped - pushed_out; enqueued = sent to the link + ended + pushed_out + flushed + waiting.
 * Bytes are those of packets when they are queued, before egress. */
typedef struct {
    gl_traffic enqueued;
    gl_traffic tail_dropped; /* found no place, or was pushed out */
    gl_traffic pushed_out;   /* had a place, and lost it to another class or to a smaller buffer */
    gl_traffic flushed;      /* waited when the port went down */
    gl_traffic ended;        /* left, and egress dropped or recirculated them */
    gl_traffic marked;       /* CE */
    gl_traffic depth;        /* waiting now */
} gl_queue_stats;

typedef struct {
    gl_traffic rx, tx;
    gl_queue_stats queues[8];
    uint64_t depth, depth_max;   /* bytes in all queues */
    gl_impaired tx_impaired, rx_impaired;
    /* Frames from the host that are not in `rx`: longer than the MTU, and not a train of packets that a network card
     * would cut it into; and those for which the kernel found no room in the port's socket. */
    gl_traffic oversize;
    uint64_t socket_drops;
    /* Drops of frames that came from this port, each one in `rx` or a copy of it. */
    gl_traffic rx_down;      /* the port was down */
    gl_traffic program;      /* the program dropped it */
    gl_traffic no_port;      /* the program sent it to a port that does not exist */
    gl_traffic rx_no_memory; /* no packet buffer */
    /* Copies that the program made of them, and originals that ended when their copies had left. */
    gl_traffic copies, replaced;
    gl_traffic uncopied;     /* copies that found no packet buffer: their originals went on */
    /* Drops of frames to this port. */
    gl_traffic tx_down;
    gl_traffic tx_no_memory;
    gl_traffic tx_errors;    /* the interface refused it */
    gl_traffic cut;          /* frames either way: on a link, or just come from it, when the port was removed */
    uint32_t up;             /* set so, and the interface is there */
} gl_port_stats;

enum { GL_EVENT_OVERSIZE = 1, GL_EVENT_DOWN = 2, GL_EVENT_UP = 3, GL_EVENT_TX_ERROR = 4 };

/* Written to the event descriptor, for the log. */
typedef struct {
    uint32_t kind;
    uint32_t port;
    int32_t error;
    uint32_t length;
} gl_event;

typedef struct gl_dataplane gl_dataplane;

/* `frame_size` is the longest frame of any port in bytes, with a VLAN tag; `memory` bounds the packet buffers in bytes;
 * packets are taken in at least `coalesce` ns after those before them, unless a socket holds more than one batch;
 * events are written to `event_fd` (non-blocking). NULL for want of memory or descriptors. */
gl_dataplane *gl_dataplane_new(gl_lock *lock, uint32_t frame_size, uint64_t memory, uint64_t coalesce, uint64_t seed,
                               int event_fd);
void gl_dataplane_free(gl_dataplane *dp);
/* Kinds of ports, by what `fd` is: a bound AF_PACKET socket with PACKET_VNET_HDR; a connected UDP socket; a TAP
 * interface; a pcap file that gets what the port sends, or -1 for none. */
enum { GL_PORT_PACKET = 0, GL_PORT_UDP = 1, GL_PORT_TAP = 2, GL_PORT_FILE = 3 };

/* `fd` stays the caller's; `frame_limit` is the longest frame in bytes, at most the data plane's. Returns 0, or -1 for
 * want of memory or if the number is taken. */
int gl_port_add(gl_dataplane *dp, uint32_t number, uint32_t kind, int fd, uint32_t frame_limit, gl_port_config config);
/* Drops what waits at the port; `last` gets its final counts. Its descriptor may be closed from then on. */
void gl_port_remove(gl_dataplane *dp, uint32_t number, gl_port_stats *last);
/* Whether the interface behind it has a carrier. */
void gl_port_link(gl_dataplane *dp, uint32_t number, uint32_t up);
/* `at`: ns of CLOCK_MONOTONIC. What the link is busy with then goes on at the new rate. */
void gl_port_configure(gl_dataplane *dp, uint32_t number, uint64_t at, gl_port_config config);
/* Of `count` ports at one and the same moment. Number GL_PORTS: of what came from no port, from the controller. */
void gl_port_statistics(gl_dataplane *dp, uint32_t count, const uint32_t *numbers, gl_port_stats *out);
void gl_port_clear(gl_dataplane *dp, uint32_t number);
/* The longest time in ns that packets have waited for a change of tables or ports; `forget`: counted anew from now on. */
uint64_t gl_longest_wait(gl_dataplane *dp, uint32_t forget);
/* Processes a frame as if it came from a port now, whether or not there is one. -1 if it is too long or memory is out. */
int gl_inject(gl_dataplane *dp, uint32_t port, const uint8_t *frame, uint32_t length);
/* NULL: packets are dropped until there is a program. What waits in queues goes through the old one's egress now, and
 * keeps its place. */
void gl_dataplane_program(gl_dataplane *dp, gl_process *process, gl_state *state);
/* Puts packets of one port, or of all (GL_PORTS), through `traced`, the same program compiled for tracing, until
 * gl_dataplane_program or a call with NULL. The tracer must stay until then. */
void gl_dataplane_trace(gl_dataplane *dp, gl_process *traced, gl_tracer *tracer, uint32_t port);
/* Moves the events out, and forgets them; how many words. `lost` gets the number of those that found no room. */
uint32_t gl_trace_take(gl_dataplane *dp, gl_tracer *tracer, uint64_t *out, uint32_t *lost);
/* Forwards until gl_stop, which may be called from any thread. Returns 0, or an errno. */
int gl_run(gl_dataplane *dp);
/* Takes no more packets in, and ends when all that wait have left, after `patience` ns at the latest. */
void gl_stop(gl_dataplane *dp, uint64_t patience);
/* Packets that wait in queues and on links. */
uint64_t gl_waiting(gl_dataplane *dp);

/* Instead of gl_run, with ports that are files: a frame enters a port at a time in ns since `epoch`, never earlier than
 * the one before it; then what is left departs. gl_finish returns 0, or an errno of writing. */
void gl_epoch(gl_dataplane *dp, uint64_t epoch);
void gl_feed(gl_dataplane *dp, uint32_t port, uint64_t now, const uint8_t *frame, uint32_t length);
int gl_finish(gl_dataplane *dp);
