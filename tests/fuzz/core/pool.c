/* SPDX-License-Identifier: Apache-2.0
 * The pool with memory of its own for each slot, in place of base/pool.c, so that a sanitizer sees where each ends. */
#include "base/pool.h"

#include <stdlib.h>

slot *slot_new(pool *p) {
    slot *s = malloc(sizeof *s + p->slice_bytes);
    if (s) *p->used += p->slice_bytes;
    return s;
}

void slot_free(pool *p, slot *s) {
    free(s);
    *p->used -= p->slice_bytes;
}

void pool_free(pool *p) { (void)p; }
