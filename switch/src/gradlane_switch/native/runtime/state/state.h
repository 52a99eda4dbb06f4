/* SPDX-License-Identifier: Apache-2.0
 * What a program keeps between packets, and controllers change. */
#ifndef GL_STATE_H
#define GL_STATE_H

#include "base/lock.h"
#include "packets/api.h"
#include "state/api.h"
#include "state/meters.h"
#include "tables/table.h"

/* One member of an action profile, or a group's: those that can be chosen now, and all, if ports are watched. */
struct gl_choice {
    uint32_t count, total;
    gl_entry **members, **all;
    uint16_t *ports;         /* what each of all depends on; NULL: none is watched */
    gl_choice *next, **link; /* in gl_state.watching */
};

typedef struct {
    uint32_t size;
    gl_counter *cells;
} gl_counter_array;

typedef struct {
    uint32_t size, counts_bytes;
    gl_meter *cells;
} gl_meter_array;

typedef struct {
    uint32_t size, words;                   /* of a cell, the lowest first */
    uint64_t *cells;
} gl_register_array;

typedef struct {
    uint32_t count;
    uint32_t limit;          /* of a clone session: bytes of a packet, */
    uint32_t priority;       /* and its class of service; 0: what the program says */
    gl_replica replicas[];
} gl_group;

/* Messages to the controller, oldest first: of one port, or those to the log. */
typedef struct gl_mail gl_mail;
typedef struct gl_mails gl_mails;

struct gl_mails {
    gl_mail *first, *last;
    uint32_t bytes;
    gl_mails *next;          /* whose turn it is after this one */
};

/* Values of one digest that wait to be told, or were told and are not acknowledged yet. */
typedef struct gl_digest gl_digest;

/* What the controller is told of. It has a lock of its own, which is held for a message or a list at a time: who takes
 * them does not wait for packets, and packets do not wait for long. */
typedef struct {
    gl_lock lock;
    gl_mails mails[GL_PORTS + 1];       /* by the port where a packet came in; the last: to the log */
    gl_mails *turn, *last_turn;         /* those that have messages, in the order of their turns */
    gl_digest **digests;                /* NULL: the controller does not want it */
    uint32_t digest_count;
    uint64_t secret;         /* so that nobody knows which values share a place in a digest's index */
    int event_fd;            /* gets 1 when there is something to take */
} gl_mailbox;

struct gl_state {
    gl_lock *lock;
    uint32_t table_count, counter_count, meter_count, register_count;
    gl_table *tables;
    gl_counter_array *counters;
    gl_meter_array *meters;
    gl_register_array *registers;
    gl_group **groups, **sessions;
    uint64_t random;
    uint32_t cpu_port;       /* GL_PORTS: there is none */
    gl_choice *watching;     /* those that depend on ports */
    uint8_t down[GL_PORTS + 1];
    gl_mailbox mailbox;
    gl_losses losses;
    uint64_t log_time;       /* ns: messages of the program to the log, at most GL_LOGGED in a second */
    uint32_t log_count;
    /* Tells the controller; the generated code has no other way to call the runtime. */
    void (*post)(gl_state *state, uint32_t kind, uint32_t id, uint64_t now, const uint8_t *bytes, uint32_t length);
};

#endif
