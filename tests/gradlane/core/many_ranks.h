/* SPDX-License-Identifier: Apache-2.0
 * What the programs share that compare the core with models of many ranks. */
#ifndef MANY_RANKS_H
#define MANY_RANKS_H

#include <stdio.h>
#include <stdlib.h>

#include "tx/tx.h"

static inline void require(bool holds, const char *what) {
    if (!holds) fprintf(stderr, "%s\n", what), exit(1);
}

static inline unsigned draw(unsigned limit) { return (unsigned)rand() % limit; }

/* A job of so many ranks, and its sending half. */
static inline void begin(job *j, tx *x, uint16_t ranks) {
    static const upcalls none;
    const gl_config config = {.job = 1, .workers = ranks, .slice_bytes = 1432, .window = 64, .rate = 10000000000,
                              .buffer = 1000000, .memory = 1 << 20};
    require(job_new(j, &config, &none, NULL) && tx_new(x, j), "memory is out");
}

#endif
