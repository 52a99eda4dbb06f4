/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The clock.
 */
#include "io/clock.h"

#include <time.h>

uint64_t gl_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}
