/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What a job is, and this rank in it, as its engine is told.
 */
#ifndef GRADLANE_CONFIG_H
#define GRADLANE_CONFIG_H

#include <stdint.h>

#include "rate/port.h"

/* Of up to GL_SUM_MEMBERS workers a sum's `members` has a bit for each, and those may be missing that their budgets let be. Of
 * more it tells nothing but that all are in it: such jobs have lanes of 32 bits, and no budgets. */
enum { GL_SUM_MEMBERS = 32, GL_MAX_SUM_WINDOW = 2048 };
enum { GL_MAX_SHARDS = 8 }; /* engines that have a job in common at each of its hosts; a power of two */

/* Slices of these layers and magnitudes (both inclusive) have this queue class or drop precedence. */
typedef struct {
    uint16_t first_layer, last_layer;
    uint8_t least, most, value;
} gl_range;

/* Slices of these layers (inclusive) may be lost: parts per million of a message, as a push and as a pull. */
typedef struct {
    uint16_t first_layer, last_layer;
    uint32_t push, pull;
} gl_loss;

/* Sums in a switch. `lanes`: GL_TYPE_INT16_LANES or INT32_LANES, 0: none. `slots` of the switch are the job's, and `window`
 * slices of a tensor may be on their way: powers of two. Older sums than those of `generation` were another run's. */
typedef struct {
    uint8_t lanes;
    uint32_t slots, window, generation;
} gl_sums;

typedef struct {
    uint16_t job, rank, workers, servers; /* servers == 0: every worker aggregates a shard */
    uint16_t slice_bytes;                 /* payload of every slice but a message's last */
    uint64_t token;
    uint16_t shard, shards;               /* this engine, of so many that have the job in common, each a port's share; 0: 1 */
    uint32_t message_base;                /* the same at all ranks; message = base + (sequence * shards' + shard) * ranks' + rank,
                                           * where n' is the least power of two from n on */
    uint32_t window;                      /* messages in flight of one source */
    uint64_t rate;                        /* bit/s of this host's link */
    uint64_t buffer;                      /* bytes that a port of the fabric holds; queues may grow to half of it */
    uint32_t loss_count;
    const gl_loss *losses;                /* loss classes; the first that holds a layer is its class, no loss without one */
    uint32_t critical;                    /* of what they tolerate, in critical phases of the training: parts per million */
    uint8_t multicast;                    /* this aggregator sends results to its multicast group, not to each worker */
    gl_port *port;                        /* that this host's jobs share; NULL: one of its own */
    uint32_t weight;                      /* of this job beside others at a port; 0: 1 */
    uint64_t memory;                      /* bytes for contributions that wait for aggregation, and what else is taken of it */
    /* A worker that is this late (us) after the median of all may be left out of a step, of `late_steps` of any `late_window`
     * consecutive ones of a tensor: fewer than that; 0: of none. */
    uint32_t late_after, late_steps, late_window;
    uint32_t trace_every;                 /* messages of a flow from one TRACE to the next; 0: none */
    gl_sums sums;
    const uint16_t *racks;                /* by worker: those of one number are near one another; NULL: all are; a copy is kept */
    uint8_t tag;                          /* DSCP and ECN are written here, by these ranges; otherwise by the switch */
    uint32_t class_count, precedence_count;
    const gl_range *classes, *precedences; /* disjoint; of all three lists the engine keeps copies */
} gl_config;

#endif
