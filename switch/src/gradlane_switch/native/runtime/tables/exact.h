/* SPDX-License-Identifier: Apache-2.0
 * Exact keys: a hash table of addresses of entries. Open addressing, linear probing, at most half full. */
#ifndef GL_EXACT_H
#define GL_EXACT_H

#include "base/lock.h"
#include "base/wide.h"
#include "tables/api.h"

typedef struct {
    uint64_t *slots;         /* an entry's address, which has 48 bits, below the upper 16 bits of its hash; 0: empty */
    uint32_t capacity;       /* slots, a power of two */
    uint32_t used;           /* slots */
    uint32_t words;          /* of a key, */
    uint32_t key_at;         /* which is behind so many words of arguments in an entry */
} gl_exact;

/* Makes room for `count` entries more, so that adding them is short and can't fail. Returns 0, or -1 for want of
 * memory. The caller does not hold the lock. */
int gl_exact_reserve(gl_exact *exact, gl_lock *lock, uint32_t count);
/* These are called with the lock. */
void gl_exact_add(gl_exact *exact, gl_entry *entry);
void gl_exact_remove(gl_exact *exact, gl_entry *entry);
void gl_exact_free(gl_exact *exact);

GL_INLINE uint64_t gl_hash(const uint64_t *key, uint32_t words) {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < words; i++) {
        h = (h ^ key[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

static const uint64_t GL_ADDRESS = (UINT64_C(1) << 48) - 1;

/* The entry that has a key. `words` and `key_at` are those of the table, but constants, so that the loops
 * unroll. */
GL_INLINE gl_entry *gl_exact_find(const gl_exact *exact, const uint64_t *key, uint32_t words, uint32_t key_at) {
    uint64_t hash = gl_hash(key, words);
    uint32_t mask = exact->capacity - 1;
    for (uint32_t i = (uint32_t)hash & mask;; i = (i + 1) & mask) {
        uint64_t slot = exact->slots[i];
        if (!slot) {
            return NULL;
        }
        if ((slot ^ hash) >> 48 == 0) {
            gl_entry *entry = (gl_entry *)(uintptr_t)(slot & GL_ADDRESS);
            if (gl_wide_equal(entry->arguments + key_at, key, words)) {
                return entry;
            }
        }
    }
}

#endif
