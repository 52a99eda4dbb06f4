/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The bounded-loss transport and the collectives on it, without I/O: datagrams go in and come out, time is an
 * argument. io/ runs it on sockets, the tests run it on a simulated network. All times are microseconds of one
 * monotonic clock; hosts are ranks, io/ knows their addresses. Not thread-safe: io/runner.c holds a lock around each call.
 */
#ifndef GRADLANE_ENGINE_H
#define GRADLANE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/batch.h"
#include "job/config.h"
#include "job/statistics.h"
#include "operation/events.h"
#include "operation/lateness.h"
#include "operation/left_out.h"
#include "plan/submission.h"
#include "rate/link.h"
#include "sums/states.h"
#include "tx/path.h"

typedef struct gl_engine gl_engine;

/* NULL if memory is out or the configuration makes no sense. */
gl_engine *gl_engine_new(const gl_config *config);
/* The engine has no part in its port any more, and sends nothing. After that gl_engine_free, which may take long, needs no lock. */
void gl_engine_leave(gl_engine *engine);
void gl_engine_free(gl_engine *engine);
uint16_t gl_engine_job(const gl_engine *engine);
/* The lowest bits of its token: engines of one job at a host differ in them, and so do their datagrams. */
unsigned gl_engine_shard(const gl_engine *engine);

/* Starts an operation; what the submission points to but `in` and `out` is copied. One that may do without late workers
 * (`late`) starts without this one's if both are NULL, for the part that it owns; the same with both completes it later,
 * and of its contribution nothing counts to that part. 0, or -1 if it makes no sense, this worker may not be left out of the
 * step, one of its step and tensor is already in flight, a message would have more than GL_MAX_SLICES slices, or memory is out. */
int gl_submit(gl_engine *engine, const gl_submission *submission, uint64_t now);

/* A tensor may be summed by a switch from now on, as its submissions say, or goes on with its steps: what is submitted of it is
 * an ALL_REDUCE to GL_SUM or a mean of a whole partition, with `in` and `out` apart. -1: there are no slots for it, it makes no
 * sense, or memory is out. It is kept to the end of the job: a byte for each of its slices, the datagrams of its
 * latest step (2 or 4 bytes an element, as the lanes are, and headers), and a window of them. */
int gl_engine_sums_open(gl_engine *engine, const gl_sum_stream *stream);
/* Nothing is sent to the switch any more, no sum is taken, and what is submitted waits, until: */
void gl_engine_sums_halt(gl_engine *engine);
/* `by_switch`: all goes on where it was, and what was contributed to those steps of `reruns` of which sums are here is sent
 * once more, for those who may lack them (remind.h). Otherwise generations up to this one are over: the steps of `reruns` are
 * completed by the hosts with what some of them have of the switch, everything else by hosts as if it had never been begun.
 * -1: a step has not begun here, or its sums are not known any more; then nothing has changed. */
int gl_engine_sums_resume(gl_engine *engine, uint32_t generation, int by_switch, const gl_sum_rerun *reruns, unsigned count,
                          uint64_t now);
/* Of all streams; returns how many there are. */
unsigned gl_engine_sums_state(const gl_engine *engine, gl_sum_state *states, unsigned most);
/* The longest time, in us, for which a stream that misses sums has got none: since its oldest slice without one was sent, or
 * since its latest sum, if that was later; a 16th of it while others get theirs. 0: no sum is missing, or they are halted. */
uint64_t gl_engine_sums_overdue(const gl_engine *engine, uint64_t now);

/* Whose collectives have that tensor: workers. Before one is called here, those alone are expected to send something of it.
 * -1: it is no group's, there is no such worker, or memory is out. */
int gl_engine_group(gl_engine *engine, uint16_t tensor, const uint16_t *ranks, unsigned count);
/* The operations of that tensor are gone, without an event, and what comes of it is refused from now on. */
void gl_engine_close(gl_engine *engine, uint16_t tensor);
/* A rank is dead: so are the operations that it has a part in here, without an event, and what comes of it is refused. */
void gl_engine_drop(gl_engine *engine, uint16_t rank);

/* So many bytes are kept for the job beside what the engine keeps, and count to its memory. -1: it has not so many left. */
int gl_engine_take_memory(gl_engine *engine, uint64_t bytes);
void gl_engine_give_memory(gl_engine *engine, uint64_t bytes);

/* Until this is called again nobody is left out of a step beyond `last`, as its owners are not agreed on; UINT32_MAX: they are. */
void gl_engine_hold(gl_engine *engine, uint32_t last);
/* From step `first` on elements have other owners, which do not know what they have missed: nobody is left out of a step before
 * late_window of them are over. Steps ascend from call to call. -1 if memory is out. */
int gl_engine_owners_change(gl_engine *engine, uint32_t first);

void gl_receive(gl_engine *engine, const uint8_t *datagram, uint32_t length, int congested, uint64_t now);
/* Datagrams to send now, or 0. The batch's memory is valid until the next call of any function. */
int gl_transmit(gl_engine *engine, gl_batch *batch, uint64_t now);
/* When gl_transmit may next have something to send if nothing arrives before; UINT64_MAX = never. */
uint64_t gl_deadline(const gl_engine *engine, uint64_t now);
/* How long (us) arrivals may be left to gather, so that one wake-up serves many: until something is sent, or little of a round trip. */
uint64_t gl_patience(const gl_engine *engine, uint64_t now);

int gl_engine_has_event(const gl_engine *engine);
/* The operation that was submitted longest ago; whom a sum in a switch waits for is not known. Returns 0 if none is in flight, else 1. */
int gl_oldest(const gl_engine *engine, uint64_t now, gl_waiting *waiting);

gl_event *gl_next_event(gl_engine *engine); /* the caller frees it with gl_event_free */
/* Whether every message that was sent has been stopped by all its receivers, and every sum has come. */
int gl_engine_idle(const gl_engine *engine);
const gl_statistics *gl_engine_statistics(const gl_engine *engine);
/* 0, or -1 if there is no such rank (== ranks: the multicast group) or class. */
int gl_peer_statistics(const gl_engine *engine, uint16_t rank, gl_counts *counts);
int gl_class_statistics(const gl_engine *engine, uint32_t loss_class, gl_counts *counts);
/* When a rank was last heard: a datagram of it with the job's token; 0: never. */
uint64_t gl_heard(const gl_engine *engine, uint16_t rank);
/* How late a worker's contributions have come, as far as this rank owns parts. -1 if there is no such worker. */
int gl_engine_lateness(const gl_engine *engine, uint16_t rank, gl_lateness *lateness);
/* How often a worker was left out of a step here. -1 if there is no such worker. */
int gl_engine_left_out(const gl_engine *engine, uint16_t rank, gl_left_out *found);
/* The same in rings, of the one before this rank. */
void gl_engine_neighbour(const gl_engine *engine, gl_neighbour *neighbour);
/* The same of what a switch has summed: how long this rank has waited for the others. */
void gl_engine_sum_waits(const gl_engine *engine, gl_sum_waits *waits);
/* What the host's link has carried of the job. */
void gl_engine_link(const gl_engine *engine, gl_link *link);
/* Slices to a rank (== ranks: to the multicast group) that arrived, since the beginning; of them, those while congestion held the
 * flow below its share. */
void gl_flow_held(const gl_engine *engine, uint16_t rank, uint64_t *delivered, uint64_t *held);
/* Current pacing rate (bit/s) and smoothed round-trip time (us) towards a rank. */
void gl_flow_state(const gl_engine *engine, uint16_t rank, uint64_t *rate, uint32_t *srtt);
/* The paths that traces to a rank have taken, the latest first; at most GL_PATHS are known. Returns their number. */
unsigned gl_paths(const gl_engine *engine, uint16_t rank, gl_path *paths);

/* The same of all: of every worker, of every rank and the group, of every rank; `traced`: whether gl_paths knows any. Who asks of
 * each by itself takes turns with the transport's thread as often. */
void gl_engine_latenesses(const gl_engine *engine, gl_lateness *all);
void gl_flows_held(const gl_engine *engine, uint64_t *delivered, uint64_t *held);
void gl_flow_states(const gl_engine *engine, uint64_t *rate, uint32_t *srtt, bool *traced);

#endif
