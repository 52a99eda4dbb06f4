/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The shared memory between one training process (the client) and the thread of its agent's transport: a ring of
 * commands, and a completion word for each command in flight. Whoever waits for a completion waits in futex(2), without
 * another thread in between; the client kicks the agent through a pipe, and only if the agent has nothing left to do.
 *
 * The client may write anything into the memory at any time. The agent copies a command before it looks at it, keeps its
 * own position in the ring, and reads nothing else that the client writes. (A pipe and not an eventfd, because the flags
 * of an eventfd are shared: the client could make the agent's end block.)
 */
#ifndef GRADLANE_CHANNEL_H
#define GRADLANE_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

enum { GL_SLOTS = 1024 }; /* commands in flight; so the ring, of the same size, never overflows */

enum { GL_COMMAND_TENSOR = 1, GL_COMMAND_COLLECTIVE };

/* OWN: `in` and `out` are addresses of the process's memory, where the agent is in that process. */
enum { GL_NO_REGION = 65535, GL_OWN_REGION = 65534 };

/* TENSOR: `target` is the tensor; nothing else is used. COLLECTIVE: `target` is the group, `root` a process's rank in the
 * job, `elements` as in gl_submission, `in` and `out` bytes from the beginning of the process's region. `loss`: of a SEND or
 * RECEIVE, what of it need not arrive, parts per million. `standing`: a RECEIVE of what may never be sent; nobody is late. */
typedef struct {
    uint16_t kind, slot, target, root;
    uint8_t collective, element_type, reduction, standing;
    uint16_t in_region, out_region;
    uint32_t loss, reserved;
    uint64_t elements, in, out;
} gl_command;

/* Values of a completion word. LOST: a host that takes part in it is dead; the others go on. */
enum { GL_PENDING = 0, GL_WAITED = 1, GL_DONE = 2, GL_FAILED = 3, GL_LOST = 4 };

size_t gl_channel_bytes(void);

/* The agent's end. `memory`: gl_channel_bytes() of zeros, shared. */
typedef struct gl_channel gl_channel;
gl_channel *gl_channel_new(void *memory, int kicks);
void gl_channel_free(gl_channel *channel);
/* Takes the next command: 1, 0 if there is none (then the next one kicks), -1 if the ring makes no sense, or the
 * command's slot is in flight. */
int gl_channel_take(gl_channel *channel, gl_command *command);
/* Reads the pipe empty. 0, or -1 if the client's end is closed. */
int gl_channel_kicked(const gl_channel *channel);
/* `how`: GL_DONE, GL_FAILED or GL_LOST. */
void gl_channel_complete(gl_channel *channel, unsigned slot, unsigned how);

/* The client's end; thread-safe. `kick`: the pipe's writing end, closed by gl_client_free. */
typedef struct gl_client gl_client;
gl_client *gl_client_new(void *memory, int kick);
void gl_client_free(gl_client *client);
/* Puts a command (its `slot` is chosen here) into the ring. Returns the slot, -1 if GL_SLOTS are in flight, -2 if the
 * channel has failed. */
int gl_client_submit(gl_client *client, const gl_command *command);
/* How many commands it takes before one is over. */
unsigned gl_client_room(gl_client *client);
/* The completion word of a slot. */
int gl_client_state(const gl_client *client, unsigned slot);
/* Waits for at most `us`. Returns the completion word, which is below GL_DONE at a timeout or a signal. */
int gl_client_wait(gl_client *client, unsigned slot, uint64_t us);
/* Of a command that is done: the slot is used again. */
void gl_client_release(gl_client *client, unsigned slot);
/* The agent is gone: what is in flight fails, and whatever is submitted later. */
void gl_client_fail(gl_client *client);
/* Whoever waits for a completion of any command is to look again, as if there were one. */
void gl_client_look(gl_client *client);
/* How many completions there have been; waits for at most `us` while there are no more than `seen`. */
uint32_t gl_client_completions(gl_client *client, uint32_t seen, uint64_t us);

#endif
