/* SPDX-License-Identifier: Apache-2.0
 * What the parts of the fuzzer share: programs as describe.py writes them down, and the input as it is read. */
#ifndef FUZZ_H
#define FUZZ_H

#include "base/time.h"
#include "dataplane/dataplane.h"
#include "packets/packet.h"
#include "state/state.h"

/* ---- Programs ---- */

/* Words, and the bits of each that may be set. */
typedef struct {
    uint32_t count;
    const uint64_t *bits;
} fuzz_words;

typedef struct {
    const uint64_t *key, *operand;
    int32_t priority;
    uint32_t action, argument_count;
    const uint64_t *arguments;
} fuzz_entry;

typedef struct {
    gl_table_shape shape;
    fuzz_words key;
    int32_t profile;         /* -1: entries have actions of their own */
    uint32_t action_count;
    const fuzz_words *actions; /* their arguments */
    fuzz_entry fallback;
    uint32_t entry_count;
    const fuzz_entry *entries;
} fuzz_table;

typedef struct {
    uint32_t size, counts_bytes;
} fuzz_meter;

typedef struct {
    uint32_t size;
    fuzz_words cell;
} fuzz_register;

typedef struct {
    gl_process *process, *traced; /* NULL: not compiled for tracing */
    uint32_t table_count, counter_count, meter_count, register_count, digest_count, profile_count;
    const fuzz_table *tables;     /* value sets are the last of them, and have no actions */
    const uint32_t *counters;     /* sizes */
    const fuzz_meter *meters;
    const fuzz_register *registers;
    const uint32_t *digests;      /* bytes of a value */
} fuzz_program;

extern const fuzz_program fuzz_programs[];
extern const uint32_t fuzz_program_count;

/* ---- The input ---- */

uint32_t fuzz_left(void);
/* 0 at the end. */
uint8_t fuzz_byte(void);
/* A number below 240 in one byte, any other in nine. */
uint64_t fuzz_number(void);
/* Below `limit`, which is not 0. */
uint32_t fuzz_below(uint32_t limit);
/* A port's number, often of one that is there. */
uint32_t fuzz_port(void);
/* A frame in memory of just its length: some bytes of the input, and zeros. */
uint8_t *fuzz_frame(uint32_t *length);

/* Ends the process unless something holds. */
void fuzz_require(int holds, const char *what);

/* ---- State of the program ---- */

extern const fuzz_program *fuzz_current;
extern gl_state *fuzz_state;

void fuzz_state_begin(gl_lock *lock);
void fuzz_state_end(void);
/* One operation of a controller, of 0..9. */
void fuzz_control(uint32_t what);

/* ---- Time and sockets ---- */

extern uint64_t fuzz_clock;  /* ns */
extern gl_dataplane *fuzz_dataplane;

/* `trouble`: what interfaces refuse, when frames arrived and so on is drawn from it; 0: everything goes well. */
void fuzz_system_begin(uint8_t trouble);
void fuzz_system_end(void);
/* A frame, and `behind` zeros after it, that waits at a port's descriptor, with what a packet socket has in front. */
void fuzz_arrive(uint32_t port, const struct virtio_net_hdr *offload, const uint8_t *frame, uint32_t length,
                 uint32_t behind);
int fuzz_descriptor(uint32_t port);
/* Frames of a port that is removed are gone. */
void fuzz_forget(uint32_t port);
/* Operations until one of them wakes the forwarding thread; 0 when there are no more. */
int fuzz_operations(void);

#endif
