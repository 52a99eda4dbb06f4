/* SPDX-License-Identifier: Apache-2.0
 * Hashes and checksums over bytes, as BMv2 computes them. */
#ifndef GL_CALCULATIONS_H
#define GL_CALCULATIONS_H

#include <stdint.h>
#include <string.h>

#include "base/inline.h"

/* Bytes that are filled bit by bit. */
typedef struct {
    uint8_t *bytes;
    uint32_t count;          /* bits */
} gl_bits;

/* The low `width` bits (1..64) of a value. */
GL_INLINE void gl_append(gl_bits *bits, uint64_t value, uint32_t width) {
    while (width) {
        uint32_t room = 8 - bits->count % 8, taken = width < room ? width : room;
        uint8_t *byte = bits->bytes + bits->count / 8;
        *byte = room == 8 ? 0 : *byte;
        *byte |= (uint8_t)((value >> (width - taken) & ((1u << taken) - 1)) << (room - taken));
        bits->count += taken;
        width -= taken;
    }
}

GL_INLINE void gl_append_bytes(gl_bits *bits, const uint8_t *bytes, uint32_t length) {
    for (uint32_t i = 0; i < length; i++) {
        gl_append(bits, bytes[i], 8);
    }
}

/* The Internet checksum's folding: a sum of 16-bit words, however wide it has grown, to 16 bits. */
GL_INLINE uint64_t gl_fold(uint64_t sum) {
    sum = (sum & 0xffffffffu) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

/* The sum of 16-bit words, the last one padded with zeros; `odd`: the first byte is the low one of a word. Words are added
 * in the machine's byte order, eight bytes at a time, and their sum is swapped (RFC 1071). */
GL_INLINE uint64_t gl_sum(const uint8_t *bytes, uint32_t length, uint32_t odd) {
    uint64_t sum = odd && length ? *bytes : 0, low = 0, high = 0;
    uint32_t at = odd && length ? 1 : 0, eights = (length - at) / 8;
    for (uint32_t i = 0; i < eights; i++) {
        uint64_t word;
        memcpy(&word, bytes + at + 8 * i, sizeof word);
        low += (uint32_t)word;
        high += word >> 32;
    }
    at += 8 * eights;
    uint64_t native = gl_fold(gl_fold(low) + gl_fold(high));
    sum += __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? (native & 0xff) << 8 | native >> 8 : native;
    for (uint32_t i = 0; at + i < length; i++) {
        sum += i % 2 ? bytes[at + i] : (uint64_t)bytes[at + i] << 8;
    }
    return sum;
}

/* A reflected CRC: the remainder, before it is XORed with the final value. */
GL_INLINE uint32_t gl_crc(const uint32_t *table, uint32_t remainder, const uint8_t *bytes, uint32_t length) {
    for (uint32_t i = 0; i < length; i++) {
        remainder = table[(remainder ^ bytes[i]) & 0xff] ^ remainder >> 8;
    }
    return remainder;
}

/* The XOR of 16-bit words, the last one padded with zeros; `result` is that of the `before` bytes in front. */
GL_INLINE uint64_t gl_xor16(uint64_t result, const uint8_t *bytes, uint32_t length, uint32_t before) {
    for (uint32_t i = 0; i < length; i++) {
        result ^= (before + i) % 2 ? bytes[i] : (uint64_t)bytes[i] << 8;
    }
    return result;
}

/* The first 8 bytes as a number; `result` is that of the `before` bytes in front. */
GL_INLINE uint64_t gl_identity(uint64_t result, const uint8_t *bytes, uint32_t length, uint32_t before) {
    for (uint32_t i = 0; i < length && before + i < 8; i++) {
        result = result << 8 | bytes[i];
    }
    return result;
}

#endif
