/* SPDX-License-Identifier: Apache-2.0
 * Counting bits. */
#ifndef GL_BITS_H
#define GL_BITS_H

#include <stdint.h>

#include "base/inline.h"

/* How many bits are set. (Compilers call a function for it unless they may use newer instructions.) */
GL_INLINE uint32_t gl_population(uint64_t bits) {
    bits -= bits >> 1 & UINT64_C(0x5555555555555555);
    bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
    bits = (bits + (bits >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (uint32_t)(bits * UINT64_C(0x0101010101010101) >> 56);
}

/* How many of the bits below one are set. */
GL_INLINE uint32_t gl_below(uint64_t bits, uint32_t bit) {
    return gl_population(bits & ((UINT64_C(1) << bit) - 1));
}

#endif
