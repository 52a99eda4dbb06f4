/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A job's data path at one host: takes the commands of the job's local processes in the runner's thread, brings their
 * contributions together, submits them to the engine, and tells the processes when the results are there.
 *
 * All functions but gl_exchange_new, _stop and _free are called with the runner's lock held. What a process commands
 * is checked here: a bad command fails the job (gl_exchange_failure), and touches no memory.
 */
#ifndef GRADLANE_EXCHANGE_H
#define GRADLANE_EXCHANGE_H

#include "channel/channel.h"
#include "io/runner.h"
#include "sums/states.h"

enum {
    GL_MAX_PROCESSES = 64,
    GL_MAX_REGIONS = 4096, /* of a process */
    GL_MAX_TENSORS = 3840,
    GL_MAX_PARTITIONS = 16,  /* wire tensor = tensor * GL_MAX_PARTITIONS + partition */
    GL_MAX_GROUPS = 4096,
    GL_SIZE_CLASSES = 48,    /* of an operation, by the logarithm of its bytes */
    GL_MOST_PLANS = 4096,    /* of a job: all are kept, as a new tensor begins with step 1 */
};

typedef struct {
    uint16_t host, hosts, servers, processes; /* own rank, workers, servers, local processes */
    uint16_t slice_bytes;
    uint8_t within; /* this is in the training process itself, which therefore may name its own memory (GL_OWN_REGION) */
    uint16_t straggler; /* the host that is one where an all-reduce is by GL_STRAGGLAR */
    double critical, threshold; /* adaptive tolerance, see tolerance.h; window 0: off */
    uint32_t window;
    uint32_t late_steps; /* of gl_config */
    uint32_t generation; /* of gl_config's sums, until a plan has another; 0: no switch sums */
} gl_exchange_config;

/* A part of a tensor that is an operation of the engine by itself. Losses in ppm: what the job tolerates. `late`: a mean may
 * leave out workers that are late. */
typedef struct {
    uint64_t first, elements;
    uint32_t push_loss, pull_loss;
    uint8_t algorithm, late; /* algorithm: 0: that of the step's gl_step_plan */
} gl_partition;

/* `contributions`: one per local process; `result`: the only contribution, if nothing may be lost, or other memory.
 * `layers`: of each slice of each partition, one partition after the other. All but the memory is copied. */
typedef struct {
    uint16_t id;
    uint8_t element_type, reduction, feedback; /* feedback: what the network drops is added to the next contribution */
    uint8_t summed; /* a switch may sum it, if its number has slots: nothing may be lost, and `result` is other memory */
    uint64_t elements;
    uint8_t *const *contributions;
    uint8_t *result;
    uint32_t partition_count;
    const gl_partition *partitions;
    const uint16_t *layers;
} gl_tensor;

/* How tensors are reduced: those of at least `least` bytes whose partitions leave it open by `algorithm`, with this host as
 * the straggler, all others directly. Of what is reduced directly owner k (a server, or without servers a host) has the
 * share weights[k]. */
typedef struct {
    uint64_t least;
    uint16_t straggler;
    uint8_t algorithm;
    const uint32_t *weights;
    uint32_t generation; /* of the sums of a switch, newer than those before; 0: it sums nothing */
} gl_step_plan;

/* The processes of a group: `member_count` of them at each of its hosts. `members`: processes of this host, ascending.
 * A pair is the path from process `from` to process `to` (ranks in the job), for SEND and RECEIVE. */
typedef struct {
    uint16_t id, host_count, member_count;
    const uint16_t *hosts, *members;
    uint8_t pair;
    uint32_t from, to;
    uint8_t algorithms[GL_SIZE_CLASSES]; /* of an all-reduce */
} gl_group;

typedef struct {
    uint64_t submitted, completed;      /* operations of local processes, each counted once */
    uint64_t elements;                  /* of completed operations */
    uint64_t reduced_bytes;             /* of tensors whose steps are complete */
    uint64_t copied_bytes;              /* between local processes */
    uint64_t residual_slices, kept_slices; /* owed at present; kept since the beginning */
    uint64_t left_out;                  /* steps in which a part of some tensor was reduced without this host */
    uint64_t late_no_memory;            /* steps that wait for this host's processes, as it may keep no more without them */
    uint64_t windows, critical_windows; /* of adaptive tolerance */
    uint32_t step, critical;            /* highest step submitted; whether the phase is critical */
} gl_exchange_statistics;

/* PROCESS: `process` sent nonsense (`text` says what). MISMATCH: host `process` disagrees about the size of what `tensor`
 * (on the wire) names. MEMORY: `text`. BUDGET: host `process` is missing in more of what a switch has summed of it than it may be. */
enum { GL_FAILURE_NONE = 0, GL_FAILURE_PROCESS, GL_FAILURE_MISMATCH, GL_FAILURE_MEMORY, GL_FAILURE_BUDGET };
typedef struct {
    uint32_t kind, process, tensor, step;
    char text[200];
} gl_failure;

/* The operation that is longest in flight. `missing` has a bit for each local process that has not called it. */
typedef struct {
    uint64_t age; /* us */
    uint32_t tensor, step; /* `tensor`: on the wire */
    uint64_t missing;
} gl_oldest_operation;

typedef struct gl_exchange gl_exchange;

/* `notify`: an eventfd that is written once, when the exchange has failed. NULL if memory or descriptors are out. */
gl_exchange *gl_exchange_new(gl_runner *runner, gl_engine *engine, const gl_exchange_config *config, int notify);
/* Takes no commands and no events any more. */
void gl_exchange_stop(gl_exchange *exchange);
/* After gl_exchange_stop, and when the engine is gone, which works on the memory to the last. */
void gl_exchange_free(gl_exchange *exchange);

/* Each of these: 0, or -1 if memory is out or the numbers make no sense. */
int gl_exchange_open(gl_exchange *exchange, unsigned process, void *memory, int kicks);
int gl_exchange_region(gl_exchange *exchange, unsigned process, unsigned region, uint8_t *memory, uint64_t bytes);
int gl_exchange_tensor(gl_exchange *exchange, const gl_tensor *tensor);
int gl_exchange_group(gl_exchange *exchange, const gl_group *group);
/* -1 if it is not there or in flight. */
int gl_exchange_release_region(gl_exchange *exchange, unsigned process, unsigned region);
/* Whether it is there, and not in flight. */
int gl_exchange_idle(const gl_exchange *exchange, unsigned id);
/* For gl_tensor_free, which needs no lock, as it may take long; NULL if it is not there or in flight. A tensor that is
 * registered under its number again goes on with its steps. */
void *gl_exchange_release_tensor(gl_exchange *exchange, unsigned id);
void gl_tensor_free(void *released);
/* Of the job's tolerance for tensors no more than that part (ppm) holds from the next step on. */
void gl_exchange_grant(gl_exchange *exchange, uint32_t part);
/* A host is dead: what its groups have in flight is LOST, and all that is called of them later. Other operations go on. */
void gl_exchange_drop(gl_exchange *exchange, unsigned host);
/* Of group `id` nothing will come to an end, as other hosts say; they are the first to know that a host of it is dead. If it
 * is registered later, all that is called of it is LOST. */
void gl_exchange_close(gl_exchange *exchange, unsigned id);
/* Copies what is owed of a tensor's partition to `values` (of the tensor), or from there. Returns how many partitions come
 * after it, -1 if the tensor is in flight, or there is none. */
int gl_exchange_residual(gl_exchange *exchange, unsigned id, unsigned partition, uint8_t *values, int import);

/* The plan holds from step `first` of every tensor on; before that, what held before: at first all is direct, with equal
 * shares, or summed by the switch in the engine's first generation. All ranks are told the same. -1 if memory is out, there is no such algorithm or straggler, the weights are all 0 or
 * their sum is above 2^32 - 1, a step from `first` on has begun, another plan holds from there on, or there are GL_MOST_PLANS. */
int gl_exchange_plan(gl_exchange *exchange, uint32_t first, const gl_step_plan *plan);
/* From now on only steps up to the returned one begin, `ahead` more than the highest that has, and nobody is left out of others. */
uint32_t gl_exchange_hold(gl_exchange *exchange, uint32_t ahead);
/* All may begin. */
void gl_exchange_release(gl_exchange *exchange);
/* Whether a step waits for gl_exchange_release. */
int gl_exchange_is_held(const gl_exchange *exchange);

/* As gl_engine_sums_halt and so on (engine.h). */
void gl_exchange_sums_halt(gl_exchange *exchange);
unsigned gl_exchange_sums_state(const gl_exchange *exchange, gl_sum_state *states, unsigned most);
int gl_exchange_sums_resume(gl_exchange *exchange, uint32_t generation, int by_switch, const gl_sum_rerun *reruns,
                            unsigned count);
/* Others wait for this step of a tensor that a switch sums. If its processes are late, and may be, this host begins it without them:
 * with zeros. What they contribute to it when they come is owed. */
void gl_exchange_go_on(gl_exchange *exchange, unsigned id, uint32_t step);
uint64_t gl_exchange_sums_overdue(const gl_exchange *exchange, uint64_t now);

/* The engine's drain (io.h). */
void gl_exchange_drain(void *exchange, gl_engine *engine, uint64_t now);

const gl_failure *gl_exchange_failure(const gl_exchange *exchange);
void gl_exchange_counts(const gl_exchange *exchange, gl_exchange_statistics *statistics);
unsigned gl_exchange_under_way(const gl_exchange *exchange);
/* 1, or 0 if nothing is in flight but standing RECEIVEs. */
int gl_exchange_oldest(const gl_exchange *exchange, gl_oldest_operation *oldest, uint64_t now);

#endif
