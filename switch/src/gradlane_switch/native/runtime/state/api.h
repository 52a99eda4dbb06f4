/* SPDX-License-Identifier: Apache-2.0
 * What Python sees of a program's state: tables, counters, meters, registers, action profiles, multicast groups, clone
 * sessions, and messages to the controller. */
#ifndef GL_STATE_API_H
#define GL_STATE_API_H

#include "base/api.h"
#include "packets/api.h"
#include "tables/api.h"

/* Limits. */
enum {
    GL_GROUPS = 65536,
    GL_SESSIONS = 32768    /* clone sessions */
};

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

/* What a program asked for in vain. `packets` and `digests`: the controller takes its mail less fast than that. */
typedef struct {
    uint64_t out_of_range;   /* accesses beyond the end of a counter, meter or register */
    uint64_t endless;        /* packets that were resubmitted, recirculated or cloned too often */
    uint64_t packets;        /* packets to the controller that found no room */
    uint64_t digests;        /* values of digests that found no room */
    uint64_t log;            /* messages to the log that were too many */
    uint64_t assertions;     /* packets for which an assertion did not hold */
} gl_losses;

enum { GL_MAIL_DIGEST = 0, GL_MAIL_PACKET = 1, GL_MAIL_LOG = 2 };

typedef struct {
    uint32_t kind;           /* GL_MAIL_PACKET or GL_MAIL_LOG */
    uint32_t id;             /* of the message, or the port where the packet came in */
    uint32_t length;
    uint64_t time;           /* ns */
} gl_mail_head;

/* How the controller wants a digest. Times in ns; a `most` of 0 is no limit. */
typedef struct {
    uint64_t timeout;        /* that a value waits for others, at most */
    uint64_t ack_timeout;    /* for which a value that was told, and is not acknowledged, is not told again */
    uint32_t most;           /* values of a list */
} gl_digest_config;

gl_state *gl_state_new(gl_lock *lock, uint32_t tables, uint32_t counters, uint32_t meters, uint32_t registers,
                       uint32_t digests);
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
void gl_entry_counters_read(gl_state *state, uint32_t count, gl_entry *const *entries, gl_counter *out);
void gl_entry_counter_write(gl_state *state, gl_entry *entry, gl_counter value);
void gl_meters_write(gl_state *state, uint32_t index, uint32_t first, uint32_t count, gl_meter_config config);
void gl_meters_configured(gl_state *state, uint32_t index, uint32_t first, uint32_t count, gl_meter_config *out);
void gl_entry_meter_write(gl_state *state, gl_entry *entry, gl_meter_config config);
/* Packets and bytes by colour, three counters a meter; and zeroes them. */
void gl_meters_read(gl_state *state, uint32_t index, uint32_t first, uint32_t count, gl_counter *out);
void gl_meters_clear(gl_state *state, uint32_t index, uint32_t first, uint32_t count);
void gl_entry_meters_read(gl_state *state, uint32_t count, gl_entry *const *entries, gl_counter *out);
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
/* Takes the oldest message of the port whose turn it is. Returns 1, 0 if there is none, or -1 if it is longer than
 * `size`: then it stays. */
int gl_mail_take(gl_state *state, gl_mail_head *head, uint8_t *bytes, uint32_t size);
/* From now on the controller wants a digest, whose values have `size` bytes, in this way; NULL: not any more, and what
 * is known of it is forgotten. Returns 0, or -1 for want of memory. */
int gl_digest_want(gl_state *state, uint32_t digest, uint32_t size, const gl_digest_config *config);
/* When a list will be due, or UINT64_MAX. The controller wants the digest, here and below. */
uint64_t gl_digest_due(gl_state *state, uint32_t digest);
/* Takes a list that is due by `now`, at most `room` values, the oldest first. Returns how many; `list` gets its number. */
uint32_t gl_digest_take(gl_state *state, uint32_t digest, uint64_t now, uint32_t room, uint8_t *out, uint64_t *list);
/* The controller has dealt with a list: its values are told again when they are learned again. */
void gl_digest_ack(gl_state *state, uint32_t digest, uint64_t list);

/* ---- Several of these changes between two packets ---- */

enum {
    GL_CHANGE_ADD = 1, GL_CHANGE_REMOVE = 2, GL_CHANGE_SET = 3, GL_CHANGE_CHOICE = 4, GL_CHANGE_ENTRY_COUNTER = 5,
    GL_CHANGE_ENTRY_METER = 6, GL_CHANGE_ENTRY_METER_CLEAR = 7, GL_CHANGE_COUNTERS = 8, GL_CHANGE_REGISTERS = 9,
    GL_CHANGE_METERS = 10, GL_CHANGE_METERS_CLEAR = 11, GL_CHANGE_GROUP = 12, GL_CHANGE_SESSION = 13
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

#endif
