/* SPDX-License-Identifier: Apache-2.0
 * The hash table as the control plane changes it. */
#include "tables/exact.h"

#include "base/memory.h"

enum { FIRST_CAPACITY = 16 };

static gl_entry *entry_at(const gl_exact *exact, uint32_t i) {
    return (gl_entry *)(uintptr_t)(exact->slots[i] & GL_ADDRESS);
}

static uint64_t hash_of(const gl_exact *exact, gl_entry *entry) {
    return gl_hash(entry->arguments + exact->key_at, exact->words);
}

static void place(gl_exact *exact, gl_entry *entry) {
    uint64_t hash = hash_of(exact, entry);
    uint32_t mask = exact->capacity - 1, i = (uint32_t)hash & mask;
    while (exact->slots[i]) {
        i = (i + 1) & mask;
    }
    exact->slots[i] = (hash & ~GL_ADDRESS) | (uintptr_t)entry;
}

int gl_exact_reserve(gl_exact *exact, gl_lock *lock, uint32_t count) {
    if (2 * ((uint64_t)exact->used + count) <= exact->capacity) {
        return 0;
    }
    gl_exact larger = *exact;
    larger.capacity = exact->capacity ? 2 * exact->capacity : FIRST_CAPACITY;
    while (2 * ((uint64_t)exact->used + count) > larger.capacity) {
        larger.capacity *= 2;
    }
    larger.slots = gl_memory_new(sizeof *larger.slots * larger.capacity);
    if (!larger.slots) {
        return -1;
    }
    for (uint32_t i = 0; i < exact->capacity; i++) {
        if (exact->slots[i]) {
            place(&larger, entry_at(exact, i));
        }
    }
    gl_acquire(lock);
    uint64_t *old = exact->slots;
    size_t size = sizeof *old * exact->capacity;
    exact->slots = larger.slots;
    exact->capacity = larger.capacity;
    gl_release(lock);
    gl_memory_free(old, size);
    return 0;
}

void gl_exact_add(gl_exact *exact, gl_entry *entry) {
    place(exact, entry);
    exact->used++;
}

void gl_exact_remove(gl_exact *exact, gl_entry *entry) {
    uint32_t mask = exact->capacity - 1, i = (uint32_t)hash_of(exact, entry) & mask;
    while (entry_at(exact, i) != entry) {
        i = (i + 1) & mask;
    }
    /* Closes the gap, so that no probe stops short. */
    for (uint32_t j = (i + 1) & mask; exact->slots[j]; j = (j + 1) & mask) {
        uint32_t home = (uint32_t)hash_of(exact, entry_at(exact, j)) & mask;
        if (((j - home) & mask) >= ((j - i) & mask)) {
            exact->slots[i] = exact->slots[j];
            i = j;
        }
    }
    exact->slots[i] = 0;
    exact->used--;
}

void gl_exact_free(gl_exact *exact) {
    gl_memory_free(exact->slots, sizeof *exact->slots * exact->capacity);
}
