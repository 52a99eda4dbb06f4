/* SPDX-License-Identifier: Apache-2.0
 * What generated programs and the runtime share beyond api.h. */
#ifndef GL_RUNTIME_H
#define GL_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "api.h"

#define GL_INLINE static inline __attribute__((always_inline))

/* ---- Packets ---- */

struct gl_packet {
    gl_packet *next, *prev;
    uint64_t due;            /* ns: when it arrived, or when it is to be delivered */
    uint64_t sequence;
    uint8_t *data;
    uint32_t length;
    uint16_t port;           /* where it came from */
    uint16_t queue;
    uint8_t room[];          /* GL_HEADROOM bytes, then the longest frame */
};

struct gl_host {
    /* A copy that has what follows `offset`, and as much room in front; NULL for want of memory. */
    gl_packet *(*copy)(gl_host *host, const gl_packet *packet, uint32_t offset);
    void (*emit)(gl_host *host, gl_packet *packet, uint32_t port, uint32_t queue, uint64_t now);
    /* `by_program`: a decision of the program, rather than the end of a packet that was copied. */
    void (*discard)(gl_host *host, gl_packet *packet, int by_program);
};

/* ---- State ---- */

/* Exact and LPM: open addressing, rows of (entry, key words), linear probing, at most half full.
 * List: rows of (entry, key words, operand words), highest priority first. */
struct gl_table {
    uint64_t *rows;
    uint32_t kind;
    uint32_t words;          /* of the key; an LPM table's key ends with the prefix length */
    uint32_t row_words;
    uint32_t used;
    uint32_t capacity;       /* rows; a power of two in a hash table */
    uint32_t max_arguments;
    uint32_t prefixes[65];   /* entries per prefix length */
    uint8_t lengths[65];     /* those in use, longest first */
    uint32_t length_count;
    gl_entry *fallback;
};

typedef struct {
    uint64_t cir, pir;                      /* units per second */
    unsigned __int128 cbs, pbs, tc, tp;     /* units * 1e9, so that rate * ns needs no division */
    uint64_t last;                          /* ns */
    uint32_t configured;
} gl_meter;

typedef struct {
    uint32_t size;
    gl_counter *cells;
} gl_counter_array;

typedef struct {
    uint32_t size, counts_bytes;
    gl_meter *cells;
} gl_meter_array;

typedef struct {
    uint32_t size;
    uint64_t *cells;
} gl_register_array;

typedef struct {
    uint32_t count;
    gl_replica replicas[];
} gl_group;

struct gl_state {
    gl_lock *lock;
    uint32_t table_count, counter_count, meter_count, register_count;
    gl_table *tables;
    gl_counter_array *counters;
    gl_meter_array *meters;
    gl_register_array *registers;
    gl_group **groups;
    uint64_t random;
};

/* ---- Lookup. The counts and kinds are constants where these are called, so the loops unroll. ---- */

GL_INLINE uint64_t gl_hash(const uint64_t *key, uint32_t words) {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < words; i++) {
        h = (h ^ key[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

GL_INLINE int gl_same(const uint64_t *a, const uint64_t *b, uint32_t words) {
    uint64_t difference = 0;
    for (uint32_t i = 0; i < words; i++) {
        difference |= a[i] ^ b[i];
    }
    return difference == 0;
}

GL_INLINE gl_entry *gl_find(const gl_table *table, const uint64_t *key, uint32_t words) {
    uint32_t mask = table->capacity - 1;
    for (uint32_t i = (uint32_t)gl_hash(key, words) & mask;; i = (i + 1) & mask) {
        const uint64_t *row = table->rows + (size_t)i * (words + 1);
        if (!row[0]) {
            return NULL;
        }
        if (gl_same(row + 1, key, words)) {
            return (gl_entry *)(uintptr_t)row[0];
        }
    }
}

GL_INLINE uint64_t gl_prefix_mask(uint32_t length, uint32_t width) {
    return length == 0 ? 0 : (~UINT64_C(0) << (64 - length)) >> (64 - width);
}

/* `key` has its prefix in the last but one word; the last is scratch. */
GL_INLINE gl_entry *gl_find_longest(const gl_table *table, uint64_t *key, uint32_t words, uint32_t width) {
    uint64_t value = key[words - 2];
    for (uint32_t i = 0; i < table->length_count; i++) {
        uint32_t length = table->lengths[i];
        key[words - 2] = value & gl_prefix_mask(length, width);
        key[words - 1] = length;
        gl_entry *entry = gl_find(table, key, words);
        if (entry) {
            return entry;
        }
    }
    return NULL;
}

/* Bit i of `ranges`: word i is a range (value <= key <= operand), otherwise a mask (key & operand == value). */
GL_INLINE gl_entry *gl_find_first(const gl_table *table, const uint64_t *key, uint32_t words, uint64_t ranges) {
    const uint64_t *row = table->rows;
    for (uint32_t n = table->used; n; n--, row += 1 + 2 * words) {
        int matches = 1;
        for (uint32_t i = 0; i < words; i++) {
            uint64_t value = row[1 + i], operand = row[1 + words + i];
            matches &= (ranges >> i & 1) ? (value <= key[i] && key[i] <= operand) : ((key[i] & operand) == value);
        }
        if (matches) {
            return (gl_entry *)(uintptr_t)row[0];
        }
    }
    return NULL;
}

/* ---- What actions do ---- */

GL_INLINE void gl_tally(gl_counter *counter, uint32_t length) {
    counter->packets++;
    counter->bytes += length;
}

GL_INLINE void gl_count(gl_state *state, uint32_t array, uint64_t index, uint32_t length) {
    if (index < state->counters[array].size) {
        gl_tally(&state->counters[array].cells[index], length);
    }
}

GL_INLINE uint64_t gl_register_read(const gl_state *state, uint32_t array, uint64_t index) {
    return index < state->registers[array].size ? state->registers[array].cells[index] : 0;
}

GL_INLINE void gl_register_write(gl_state *state, uint32_t array, uint64_t index, uint64_t value) {
    if (index < state->registers[array].size) {
        state->registers[array].cells[index] = value;
    }
}

GL_INLINE void gl_refill(unsigned __int128 *tokens, unsigned __int128 burst, uint64_t rate, uint64_t elapsed) {
    unsigned __int128 filled = *tokens + (unsigned __int128)rate * elapsed;
    *tokens = filled < burst ? filled : burst;
}

/* RFC 2698, colour-blind: 0 green, 1 yellow, 2 red. */
GL_INLINE uint64_t gl_execute_meter(gl_state *state, uint32_t array, uint64_t index, uint32_t length, uint64_t now) {
    gl_meter_array *meters = &state->meters[array];
    if (index >= meters->size || !meters->cells[index].configured) {
        return 0;
    }
    gl_meter *meter = &meters->cells[index];
    if (now > meter->last) {
        uint64_t elapsed = now - meter->last;
        gl_refill(&meter->tc, meter->cbs, meter->cir, elapsed);
        gl_refill(&meter->tp, meter->pbs, meter->pir, elapsed);
        meter->last = now;
    }
    unsigned __int128 cost = (unsigned __int128)(meters->counts_bytes ? length : 1) * 1000000000u;
    if (meter->tp < cost) {
        return 2;
    }
    meter->tp -= cost;
    if (meter->tc < cost) {
        return 1;
    }
    meter->tc -= cost;
    return 0;
}

GL_INLINE uint64_t gl_shift_left(uint64_t value, uint64_t distance) {
    return distance < 64 ? value << distance : 0;
}

GL_INLINE uint64_t gl_shift_right(uint64_t value, uint64_t distance) {
    return distance < 64 ? value >> distance : 0;
}

/* xorshift64* (Vigna). The state is never 0. */
GL_INLINE uint64_t gl_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(0x2545f4914f6cdd1d);
}

/* A number in [low, high]. */
GL_INLINE uint64_t gl_random_between(gl_state *state, uint64_t low, uint64_t high) {
    uint64_t random = gl_random(&state->random);
    if (high <= low) {
        return low;
    }
    uint64_t span = high - low + 1;
    return span == 0 ? random : low + (uint64_t)(((unsigned __int128)random * span) >> 64);
}

/* The Internet checksum's folding: a sum of 16-bit words, however wide it has grown, to 16 bits. */
GL_INLINE uint64_t gl_fold(uint64_t sum) {
    sum = (sum & 0xffffffffu) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

/* CRC-16/ARC and CRC-32 as BMv2 computes them, over bytes. */
GL_INLINE uint64_t gl_crc16(const uint8_t *bytes, uint32_t length) {
    uint32_t crc = 0;
    for (uint32_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? (crc >> 1) ^ 0xa001u : crc >> 1;
        }
    }
    return crc;
}

GL_INLINE uint64_t gl_crc32(const uint8_t *bytes, uint32_t length) {
    uint32_t crc = 0xffffffffu;
    for (uint32_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? (crc >> 1) ^ 0xedb88320u : crc >> 1;
        }
    }
    return crc ^ 0xffffffffu;
}

#endif
