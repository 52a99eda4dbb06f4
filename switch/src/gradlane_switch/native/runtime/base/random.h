/* SPDX-License-Identifier: Apache-2.0
 * Pseudo-random numbers. */
#ifndef GL_RANDOM_H
#define GL_RANDOM_H

#include <stdint.h>

#include "base/inline.h"

/* xorshift64* (Vigna). The state is never 0. */
GL_INLINE uint64_t gl_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(0x2545f4914f6cdd1d);
}

#endif
