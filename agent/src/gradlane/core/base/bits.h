/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Sets of bits, and numbers as they are on the wire: big-endian, not aligned.
 */
#ifndef GRADLANE_BITS_H
#define GRADLANE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool test_bit(const uint64_t *bits, uint32_t i) { return bits[i >> 6] >> (i & 63) & 1; }
static inline void set_bit(uint64_t *bits, uint32_t i) { bits[i >> 6] |= 1ull << (i & 63); }
static inline void clear_bit(uint64_t *bits, uint32_t i) { bits[i >> 6] &= ~(1ull << (i & 63)); }
static inline size_t words(uint32_t bits) { return (bits + 63) / 64; }

static inline uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static inline uint32_t get32(const uint8_t *p) { return (uint32_t)get16(p) << 16 | get16(p + 2); }
static inline uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }
static inline void put16(uint8_t *p, uint16_t v) { p[0] = (uint8_t)(v >> 8), p[1] = (uint8_t)v; }
static inline void put32(uint8_t *p, uint32_t v) { put16(p, (uint16_t)(v >> 16)), put16(p + 2, (uint16_t)v); }
static inline void put64(uint8_t *p, uint64_t v) { put32(p, (uint32_t)(v >> 32)), put32(p + 4, (uint32_t)v); }

#endif
