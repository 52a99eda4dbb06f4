/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs an engine on UDP sockets in the calling thread.
 */
#ifndef GRADLANE_IO_H
#define GRADLANE_IO_H

#include "engine.h"

typedef struct gl_runner gl_runner;

/* `sockets`: bound UDP sockets; the first one sends. `port`: of every peer. `notify`: an eventfd that is written when
 * an event waits in the engine. The runner closes none of them. NULL if memory or descriptors are out. */
gl_runner *gl_runner_new(gl_engine *engine, const int *sockets, int count, uint16_t port, int notify);
/* Serves until gl_runner_stop. Returns 0, or the errno of what made it impossible to go on. */
int gl_runner_run(gl_runner *runner);
void gl_runner_stop(gl_runner *runner);
/* After run has returned. Frees the engine too. */
void gl_runner_free(gl_runner *runner);

/* As the functions of engine.h, from any thread while run is under way. */
int gl_runner_submit(gl_runner *runner, const gl_submission *submission);
gl_event *gl_runner_event(gl_runner *runner);
int gl_runner_idle(gl_runner *runner);
void gl_runner_statistics(gl_runner *runner, gl_statistics *statistics);
void gl_runner_path_state(gl_runner *runner, uint16_t rank, uint64_t *rate, uint32_t *srtt);
unsigned gl_runner_routes(gl_runner *runner, uint16_t rank, gl_route *routes);
/* Datagrams that the kernel refused to send, and the errno of the last one. */
void gl_runner_send_errors(gl_runner *runner, uint64_t *count, int *last);

#endif
