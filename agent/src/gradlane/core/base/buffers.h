/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Buffers that datagrams are received into. What is in one may be used where it lies as long as somebody holds it. One thread
 * at a time takes them; any may hold and release.
 */
#ifndef GRADLANE_BUFFERS_H
#define GRADLANE_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BUFFER_BYTES = 1 << 16 }; /* more than the largest datagram, or a train of them that the kernel hands over as one */

typedef struct {
    uint8_t *memory;
    uint32_t *holds; /* by buffer; one is its taker's */
    uint32_t *next;  /* by buffer: of those that nobody holds, from 1; 0: it is the last */
    uint32_t unused, released; /* unused: the taker's; released: since it last looked */
    uint32_t count, users;
} buffers;

/* With one user. NULL: memory is out. */
buffers *buffers_new(uint32_t count);
void buffers_use(buffers *b);   /* one more */
void buffers_leave(buffers *b); /* one less, who holds none any more; after the last one they are gone */

/* One that nobody holds, which its taker then does. NULL: all are held. */
uint8_t *buffer_take(buffers *b);
/* Whether there is another one to take. Only who takes makes it untrue. */
static inline bool buffers_spare(const buffers *b) {
    return __atomic_load_n(&b->unused, __ATOMIC_RELAXED) || __atomic_load_n(&b->released, __ATOMIC_RELAXED);
}
/* Who has taken it gets it back if nobody else holds it; otherwise another one instead, or NULL, if all are held. */
uint8_t *buffer_exchange(buffers *b, uint8_t *taken);
void buffer_release(buffers *b, const void *within);

static inline bool buffers_have(const buffers *b, const void *at) {
    return b && (size_t)((const uint8_t *)at - b->memory) < (size_t)b->count * BUFFER_BYTES;
}
static inline uint32_t *buffer_holds(buffers *b, const void *within) {
    return &b->holds[(size_t)((const uint8_t *)within - b->memory) / BUFFER_BYTES];
}
static inline void buffer_hold(buffers *b, const void *within) {
    __atomic_fetch_add(buffer_holds(b, within), 1, __ATOMIC_RELAXED);
}

#endif
