/* SPDX-License-Identifier: Apache-2.0
 * A job: an engine for each rank, the network between them, and the collectives that its workers call. */
#ifndef FUZZ_WORLD_H
#define FUZZ_WORLD_H

#include <stdbool.h>

#include "engine/engine.h"
#include "input.h"

enum { MOST_RANKS = 6, MOST_CALLS = 16, JOB = 3, SUMMED_TENSOR = 1, FIRST_GENERATION = 0x7ffffffe };

extern const uint64_t fuzz_token;

typedef struct {
    unsigned workers, servers, ranks, slice_bytes;
    uint32_t message_base;
    unsigned stride;      /* from one message of a rank to its next */
    uint32_t loss_count;
    gl_loss losses[2];
    bool multicast, honest; /* honest: everybody sends what an engine makes, and calls the same */
    uint64_t now;
    gl_engine *engines[MOST_RANKS];
    gl_port *ports[MOST_RANKS];
} fuzz_job;

extern fuzz_job fuzz_world;

void world_begin(bool honest);
void world_end(void);

/* ---- The network (network.c) ---- */

/* Takes what an engine has to send into the network. */
void network_transmit(unsigned rank);
/* Takes what the engines tell. */
void network_events(void);
/* A datagram is on its way to a rank, or to the switch that sums: `ranks` + 1. */
void network_push(unsigned to, const uint8_t *bytes, uint32_t length);
/* Does something with a datagram that waits, as the input says. */
void network_deliver(void);
/* Delivers all that waits, in order. */
void network_deliver_all(void);
/* A datagram comes that nobody sent: one that was sent, with changes, or a new one; its token is right. */
void network_forge_changed(void);
void network_forge_new(void);
/* When something may happen next; UINT64_MAX: never. */
uint64_t network_deadline(void);
void network_end(void);

/* ---- The workers (calls.c) ---- */

void calls_begin(void);
void calls_end(void);
/* A worker calls a collective, or one that others have called already. */
void calls_submit(void);
/* Whoever has not yet called does so. */
void calls_submit_all(void);
void calls_event(unsigned rank, const gl_event *event);
/* Whether each call is complete at everybody. */
bool calls_complete(void);
/* Step and tensor of some call. */
void calls_name(uint32_t *step, uint16_t *tensor);

/* ---- A tensor that a switch sums (summed.c) ---- */

void summed_begin(void);
void summed_end(void);
/* The switch forgets what it has; gets a datagram. */
void summed_forget(void);
void summed_take(const uint8_t *bytes, uint32_t length);
/* A worker begins its next step, if it is through with the last one; whoever has not begun one that others have does so. */
void summed_submit(unsigned rank);
void summed_submit_all(void);
void summed_event(unsigned rank, const gl_event *event);
/* Whether all have completed the same steps. */
bool summed_complete(void);
/* All halt, and go on by the switch or, if they give it up, by hosts; some steps later by the switch again. */
void summed_halt(bool gives_up);

#endif
