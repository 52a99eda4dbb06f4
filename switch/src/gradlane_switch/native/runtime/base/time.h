/* SPDX-License-Identifier: Apache-2.0
 * Times are in ns. */
#ifndef GL_TIME_H
#define GL_TIME_H

#include <stdint.h>
#include <time.h>

static const uint64_t GL_SECOND = 1000000000u;

static inline uint64_t gl_clock(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * GL_SECOND + (uint64_t)time.tv_nsec;
}

#endif
