/* SPDX-License-Identifier: Apache-2.0
 * What an engine allocates when it is made: so much, and so much for each rank. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/engine.h"

enum { ENGINE = 64 << 10, RANK = 1280 }; /* bytes, at most */

static size_t taken;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) { return taken += count * size, __real_calloc(count, size); }
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size) { return taken += size, __real_malloc(size); }
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size) { return taken += size, __real_realloc(old, size); }

static size_t bytes_of(unsigned ranks) {
    const gl_config config = {.job = 1, .workers = (uint16_t)ranks, .slice_bytes = 1432, .window = 64, .rate = 10000000000,
                              .buffer = 1000000, .memory = 1 << 24};
    taken = 0;
    gl_engine *engine = gl_engine_new(&config);
    const size_t bytes = taken;
    if (!engine) exit(1);
    gl_engine_free(engine);
    return bytes;
}

int main(void) {
    const size_t two = bytes_of(2), all = bytes_of(GL_MAX_RANKS);
    printf("%zu bytes of two ranks, %zu of %d\n", two, all, GL_MAX_RANKS);
    return two > ENGINE || all > ENGINE + GL_MAX_RANKS * RANK;
}
