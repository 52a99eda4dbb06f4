/* SPDX-License-Identifier: Apache-2.0
 * What the benchmark's loads on the engine find, and the clock that they measure by. */
#ifndef CORE_FIGURES_H
#define CORE_FIGURES_H

#include <stdint.h>
#include <time.h>

enum {
    STEP = 10,    /* us until somebody may send, where nobody could */
    MOST = 100000, /* such steps, of an all-reduce that ends */
    BUFFERS = 256 /* as a runner has them */
};

/* ns, and slices. `control`: all that rank 0 does without slices. */
typedef struct {
    uint64_t received_ns, received, sent_ns, sent, taken_ns, taken, control_ns;
    uint64_t wrong; /* elements of the result */
} core_figures;

/* Of this thread's CPU time. */
static inline uint64_t ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What is measured where nothing is done: a call of the clock, which takes 100 to 500 ns. */
static inline uint64_t least_ns(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        const uint64_t begun = ns(), took = ns() - begun;
        if (took < least) least = took;
    }
    return least;
}

/* Without the clock's part. */
static inline uint64_t since(uint64_t begun, uint64_t clock) {
    const uint64_t took = ns() - begun;
    return took > clock ? took - clock : 0;
}

#endif
