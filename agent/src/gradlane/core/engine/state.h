/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The parts of an engine. The simulator looks into them, too.
 */
#ifndef GRADLANE_ENGINE_STATE_H
#define GRADLANE_ENGINE_STATE_H

#include "engine/engine.h"
#include "operation/operation.h"
#include "rx/rx.h"
#include "sums/sums.h"
#include "tx/tx.h"

struct gl_engine {
    job job;
    tx tx;
    rx rx;
    operations operations;
    sums sums;
    bool sums_turn; /* the other lanes have had theirs */
    uint64_t *dead;  /* ranks */
    uint64_t *heard; /* by rank: when the last datagram with the job's token came; 0: none yet */
};

#endif
