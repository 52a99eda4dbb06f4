/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A thread of the agent's transport: UDP sockets, engines, and descriptors that others watch.
 */
#ifndef GRADLANE_RUNNER_H
#define GRADLANE_RUNNER_H

#include <sys/socket.h>

#include "engine/engine.h"
#include "io/beats.h"

typedef struct gl_runner gl_runner;

/* `foreign`: datagrams whose header no engine's job is in. `received_aside`: that the second thread has read. `unsegmented`:
 * batches that the kernel refused to segment, so that each of their datagrams was sent by itself. */
typedef struct {
    uint64_t wakeups, received, received_aside, sent, foreign, unsegmented, send_errors;
    int send_errno;
} gl_runner_counts;

/* NULL if memory or descriptors are out. The runner closes no descriptor that it is given. */
gl_runner *gl_runner_new(void);
/* From now on a second thread reads the sockets while much comes; before gl_runner_run. -1: memory or threads are out. */
int gl_runner_read_aside(gl_runner *runner);
/* Serves until gl_runner_stop. Returns 0, or the errno of what made it impossible to go on. */
int gl_runner_run(gl_runner *runner);
void gl_runner_stop(gl_runner *runner);
/* After run has returned. */
void gl_runner_free(gl_runner *runner);

/* All that follows may be called from any thread, and from the callbacks. -1 if memory is out. */

/* Datagrams are received on `fd`, a bound UDP socket. */
int gl_runner_socket(gl_runner *runner, int fd);
/* Called in the runner's thread with its lock held, when `fd` is readable. It is called again until it has read. */
typedef void gl_ready(void *context, uint64_t now);
int gl_runner_watch(gl_runner *runner, int fd, gl_ready *ready, void *context);
/* A socket or a watched descriptor: after this returns it is not used any more. */
void gl_runner_unwatch(gl_runner *runner, int fd);

/* Takes the engine's events: called in the runner's thread with its lock held, when there are some. */
typedef void gl_drain(void *context, gl_engine *engine, uint64_t now);
/* The engine gets the datagrams of its job, and sends by `socket`, to `peers`: `count` addresses, by rank, then that of
 * its multicast group if it has one (otherwise any), then that of a switch's sums if the job has such. They are copied. */
int gl_runner_add(gl_runner *runner, gl_engine *engine, int socket, const struct sockaddr_storage *peers, unsigned count,
                  gl_drain *drain, void *context);
/* From now on `drain` takes the engine's events; NULL: they stay in it. */
void gl_runner_deliver(gl_runner *runner, const gl_engine *engine, gl_drain *drain, void *context);
/* From now on, until the engine is removed, the beats are sent every GL_BEAT_US. They are copied; -1 if memory is out, or
 * they are too long. */
int gl_runner_beat(gl_runner *runner, const gl_engine *engine, const gl_beats *beats);
/* After this returns the engine is the caller's again. */
void gl_runner_remove(gl_runner *runner, gl_engine *engine);

/* Around every call on an engine that the runner has, from another thread. */
void gl_runner_lock(gl_runner *runner);
void gl_runner_unlock(gl_runner *runner);
/* After an engine was given something to do from another thread. */
void gl_runner_wake(gl_runner *runner);

void gl_runner_statistics(gl_runner *runner, gl_runner_counts *counts);
/* Datagrams of this engine that the kernel refused to send, and the errno of the last one. */
void gl_runner_send_errors(gl_runner *runner, const gl_engine *engine, uint64_t *count, int *last);

#endif
