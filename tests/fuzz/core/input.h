/* SPDX-License-Identifier: Apache-2.0
 * The input as it is read. */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <stdint.h>

typedef struct {
    const uint8_t *at, *end;
} fuzz_input;

extern fuzz_input fuzz_in;

/* 0 at the end. */
static inline uint8_t fuzz_byte(void) { return fuzz_in.at < fuzz_in.end ? *fuzz_in.at++ : 0; }

/* A number below 240 in one byte, any other in five. */
static inline uint32_t fuzz_number(void) {
    uint32_t value = fuzz_byte();
    if (value < 240) return value;
    value = 0;
    for (int i = 0; i < 4; i++) value |= (uint32_t)fuzz_byte() << 8 * i;
    return value;
}

/* Below `limit`, which is not 0. */
static inline uint32_t fuzz_below(uint32_t limit) { return fuzz_byte() % limit; }

/* Ends the process unless something holds. */
void fuzz_require(int holds, const char *what);

#endif
