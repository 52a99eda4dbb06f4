/* SPDX-License-Identifier: Apache-2.0
 * The pool with memory of its own for each slot, in place of base/pool.c, so that a sanitizer sees where each ends. */
#include "base/pool.h"

#include <stdlib.h>

slot *slot_new(pool *p) {
    slot *s = malloc(sizeof *s + p->slice_bytes);
    if (s) *p->used += p->slice_bytes;
    return s;
}

slot *slot_hold(pool *p, const uint8_t *payload) {
    (void)p, (void)payload;
    abort(); /* there are no buffers here: tests/gradlane/core/trains.c has some */
}

void slot_free(pool *p, slot *s) {
    free(s);
    *p->used -= p->slice_bytes;
}

void pool_free(pool *p) { (void)p; }
