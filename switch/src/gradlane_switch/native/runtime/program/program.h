/* SPDX-License-Identifier: Apache-2.0
 * What generated programs and the runtime share beyond api.h. */
#ifndef GL_RUNTIME_H
#define GL_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>


#define GL_INLINE static inline __attribute__((always_inline))

#include "tables/table.h"
#include "base/wide.h"

/* ---- Packets ---- */

struct gl_packet {
    gl_packet *next, *prev;
    uint64_t due;            /* ns: when it arrived, was queued, or is to be delivered */
    uint64_t sequence;
    uint64_t traced;         /* its number in traces; 0: nobody looks */
    void *kept;              /* in a queue: what egress needs to know of it; NULL: it has been through egress */
    uint8_t *data;
    uint32_t length;
    uint32_t size;           /* in a queue: bytes that it takes of the buffer */
    uint16_t port;           /* where it came from */
    uint16_t out, queue;     /* where it is to leave */
    uint8_t queued;          /* GL_IN_QUEUE ... */
    uint8_t marked;          /* it is to get CE */
    uint32_t origin;         /* of packets that came in one frame, and 0 of those that came alone */
    uint32_t part;           /* which of them it was */
    uint8_t room[];          /* GL_HEADROOM bytes, then the longest frame */
};

enum {
    GL_NOT_QUEUED = 0,
    GL_PASSED_QUEUE,
    GL_IN_QUEUE              /* it goes through egress without leaving its place */
};

/* A packet that has a buffer, and nothing else yet. */
GL_INLINE gl_packet *gl_fresh(gl_packet *packet) {
    packet->traced = 0;
    packet->origin = 0;
    packet->kept = NULL;
    packet->data = packet->room + GL_HEADROOM;
    packet->queued = GL_NOT_QUEUED;
    packet->marked = 0;
    return packet;
}

/* What becomes of a packet that is to leave at a port. */
typedef enum {
    GL_NOW,                  /* it goes through egress at once, and then to `emit` or `discard` */
    GL_WAITS,                /* the program gets it again when it leaves its queue */
    GL_GONE                  /* it was dropped */
} gl_admission;

/* The bytes of a variable-length field that begins `shift` bits (0..7) behind `at`, and back: the bits in front are there
 * already, and those behind in the last byte become 0. */
GL_INLINE void gl_take_bytes(uint8_t *bytes, const uint8_t *at, uint32_t length, uint32_t shift) {
    if (shift == 0) {
        memcpy(bytes, at, length);
        return;
    }
    for (uint32_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(at[i] << shift | at[i + 1] >> (8 - shift));
    }
}

GL_INLINE void gl_put_bytes(uint8_t *at, const uint8_t *bytes, uint32_t length, uint32_t shift) {
    if (shift == 0) {
        memcpy(at, bytes, length);
        return;
    }
    for (uint32_t i = 0; i < length; i++) {
        at[i] |= (uint8_t)(bytes[i] >> shift);
        at[i + 1] = (uint8_t)(bytes[i] << (8 - shift));
    }
}

/* Whether two big-endian numbers of so many bytes are equal. */
GL_INLINE uint64_t gl_same_number(const uint8_t *left, uint32_t left_bytes, const uint8_t *right, uint32_t right_bytes) {
    uint32_t common = left_bytes < right_bytes ? left_bytes : right_bytes;
    const uint8_t *rest = left_bytes > right_bytes ? left : right;
    for (uint32_t i = 0, more = left_bytes + right_bytes - 2 * common; i < more; i++) {
        if (rest[i]) {
            return 0;
        }
    }
    return memcmp(left + left_bytes - common, right + right_bytes - common, common) == 0;
}

struct gl_host {
    /* A copy that has what follows `offset`, and GL_HEADROOM in front; NULL for want of memory, or if it is too long. */
    gl_packet *(*copy)(gl_host *host, const gl_packet *packet, uint32_t offset);
    /* Other packets that wait where this one is to leave. */
    uint32_t (*depth)(gl_host *host, const gl_packet *packet);
    /* Between ingress and egress: `due`, `size`, `out` and `queue` are set. If it waits, `bytes` at `state` are kept. */
    gl_admission (*enqueue)(gl_host *host, gl_packet *packet, const void *state, size_t bytes);
    void (*emit)(gl_host *host, gl_packet *packet);
    /* `by_program`: a decision of the program, rather than the end of a packet that was copied. */
    void (*discard)(gl_host *host, gl_packet *packet, int by_program);
    gl_tracer *tracer;       /* NULL: nobody looks */
};

/* ---- Tracing: what a program says in it is compiled only with GL_TRACED ---- */

GL_INLINE void gl_trace(gl_tracer *tracer, uint32_t kind, const uint64_t *head, uint32_t heads, const uint64_t *rest,
                        uint32_t rests) {
    if (!tracer) {
        return;
    }
    if (tracer->capacity - tracer->used < 1 + heads + rests) {
        tracer->lost++;
        return;
    }
    uint64_t *at = tracer->words + tracer->used;
    *at++ = (uint64_t)kind << 32 | (heads + rests);
    memcpy(at, head, heads * sizeof *at);
    memcpy(at + heads, rest, rests * sizeof *at);
    tracer->used += 1 + heads + rests;
}

#define GL_NOTE_WORDS(tracer, kind, words, count, ...)                                                                 \
    do {                                                                                                               \
        const uint64_t head_[] = {__VA_ARGS__};                                                                        \
        gl_trace(tracer, kind, head_, sizeof head_ / sizeof *head_, words, count);                                     \
    } while (0)
#define GL_NOTE(tracer, kind, ...) GL_NOTE_WORDS(tracer, kind, head_, 0, __VA_ARGS__)

GL_INLINE void gl_trace_packet(gl_tracer *tracer, const gl_packet *packet, uint64_t now) {
    uint64_t bytes[16] = {0};
    memcpy(bytes, packet->data, packet->length < sizeof bytes ? packet->length : sizeof bytes);
    GL_NOTE_WORDS(tracer, GL_TRACE_PACKET, bytes, 16, packet->traced, packet->port, now, packet->length);
}

#ifdef GL_TRACED
static __thread gl_tracer *gl_traced;
#define GL_TRACE_TO(to) (gl_traced = (to))
#define GL_TRACE_START(packet, now) gl_trace_packet(gl_traced, packet, now)
#define GL_TRACE(kind, ...) GL_NOTE(gl_traced, kind, __VA_ARGS__)
#define GL_TRACE_WORDS(kind, words, count, ...) GL_NOTE_WORDS(gl_traced, kind, words, count, __VA_ARGS__)
#else
#define GL_TRACE_TO(...) ((void)0)
#define GL_TRACE_START(...) ((void)0)
#define GL_TRACE(...) ((void)0)
#define GL_TRACE_WORDS(...) ((void)0)
#endif

/* What a packet is to do when its pipeline ends, and its lengths in bytes. The lists count from 1; 0 is none. */
typedef struct {
    uint32_t length;         /* as it entered ingress: what counters and meters count */
    uint32_t size;           /* v1model's packet_length: and what headers have been added since, less those removed */
    uint32_t limit;          /* of truncate */
    uint16_t clone;          /* session, with GL_CLONED set */
    uint16_t clone_fields, resubmit, recirculate, digest;
    uint16_t passes;         /* how often it and its copies have come back by now */
    uint8_t failed;          /* an assertion: the packet is to be dropped */
} gl_marks;

enum { GL_CLONED = 0x8000 };

/* One member of an action profile, or a group's: those that can be chosen now, and all, if ports are watched. */
struct gl_choice {
    uint32_t count, total;
    gl_entry **members, **all;
    uint16_t *ports;         /* what each of all depends on; NULL: none is watched */
    gl_choice *next, **link; /* in gl_state.watching */
};

/* ---- State ---- */

struct gl_meter {
    uint64_t cir, pir;                      /* units per second */
    unsigned __int128 cbs, pbs, tc, tp;     /* units * 1e9, so that rate * ns needs no division */
    uint64_t last;                          /* ns */
    uint32_t configured;
    gl_counter counts[3];                   /* by colour */
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

/* What the controller is told of, oldest first. */
typedef struct gl_mail gl_mail;

typedef struct {
    gl_mail *first, *last;
    uint64_t bytes;
    int event_fd;            /* gets 1 when the first of them comes */
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

/* ---- What actions do ---- */

GL_INLINE void gl_tally(gl_counter *counter, uint32_t length) {
    counter->packets++;
    counter->bytes += length;
}

GL_INLINE void gl_count(gl_state *state, uint32_t array, uint64_t index, uint32_t length) {
    if (index < state->counters[array].size) {
        gl_tally(&state->counters[array].cells[index], length);
    } else {
        state->losses.out_of_range++;
    }
}

/* The cell, or NULL if there is none with that index. */
GL_INLINE uint64_t *gl_register(gl_state *state, uint32_t array, uint64_t index, uint32_t words) {
    if (index < state->registers[array].size) {
        return state->registers[array].cells + index * words;
    }
    state->losses.out_of_range++;
    return NULL;
}

GL_INLINE void gl_refill(unsigned __int128 *tokens, unsigned __int128 burst, uint64_t rate, uint64_t elapsed) {
    unsigned __int128 filled = *tokens + (unsigned __int128)rate * elapsed;
    *tokens = filled < burst ? filled : burst;
}

enum { GL_GREEN = 0, GL_YELLOW = 1, GL_RED = 2 };

/* RFC 2698, colour-blind; `units` are what the packet costs. */
GL_INLINE uint64_t gl_meter_colour(gl_meter *meter, uint32_t units, uint64_t now) {
    if (!meter->configured) {
        return GL_GREEN;
    }
    if (now > meter->last) {
        uint64_t elapsed = now - meter->last;
        gl_refill(&meter->tc, meter->cbs, meter->cir, elapsed);
        gl_refill(&meter->tp, meter->pbs, meter->pir, elapsed);
        meter->last = now;
    }
    unsigned __int128 cost = (unsigned __int128)units * 1000000000u;
    if (meter->tp < cost) {
        return GL_RED;
    }
    meter->tp -= cost;
    if (meter->tc < cost) {
        return GL_YELLOW;
    }
    meter->tc -= cost;
    return GL_GREEN;
}

/* The same, and counts a packet of `length` bytes for its colour. */
GL_INLINE uint64_t gl_meter_run(gl_meter *meter, uint32_t units, uint32_t length, uint64_t now) {
    uint64_t colour = gl_meter_colour(meter, units, now);
    gl_tally(&meter->counts[colour], length);
    return colour;
}

/* The meter, or NULL if there is none with that index. */
GL_INLINE gl_meter *gl_meter_at(gl_state *state, uint32_t array, uint64_t index) {
    if (index < state->meters[array].size) {
        return &state->meters[array].cells[index];
    }
    state->losses.out_of_range++;
    return NULL;
}

enum { GL_LOGGED = 100 };

/* What the program says, to the log. What is too much is counted only. */
GL_INLINE void gl_log(gl_state *state, uint32_t message, uint64_t now, const uint64_t *values, uint32_t count) {
    if (now - state->log_time >= 1000000000u || now < state->log_time) {
        state->log_time = now;
        state->log_count = 0;
    }
    if (state->log_count == GL_LOGGED) {
        state->losses.log++;
        return;
    }
    state->log_count++;
    state->post(state, GL_MAIL_LOG, message, now, (const uint8_t *)values, 8 * count);
}

GL_INLINE void gl_assertion_failed(gl_state *state, uint32_t message, uint64_t now) {
    state->losses.assertions++;
    gl_log(state, message, now, NULL, 0);
}

/* xorshift64* (Vigna). The state is never 0. */
GL_INLINE uint64_t gl_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(0x2545f4914f6cdd1d);
}

/* A number in [low, high]. */
GL_INLINE uint64_t gl_random_between(gl_state *state, uint64_t low, uint64_t high) {
    uint64_t random = gl_random(&state->random);
    if (high <= low) {
        return low;
    }
    uint64_t span = high - low + 1;
    return span == 0 ? random : low + (uint64_t)(((unsigned __int128)random * span) >> 64);
}

#endif
