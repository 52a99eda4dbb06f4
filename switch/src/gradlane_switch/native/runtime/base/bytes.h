/* SPDX-License-Identifier: Apache-2.0
 * Numbers in bytes of packets: big-endian, and not always aligned. */
#ifndef GL_BYTES_H
#define GL_BYTES_H

#include <stdint.h>
#include <string.h>

#include "base/inline.h"

GL_INLINE uint32_t gl_get16(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 8 | bytes[1];
}

GL_INLINE uint64_t gl_get64(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap64(value) : value;
}

GL_INLINE void gl_put64(uint8_t *bytes, uint64_t value) {
    value = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap64(value) : value;
    memcpy(bytes, &value, sizeof value);
}

/* The bytes of a variable-length field that begins `shift` bits (0..7) behind `at`, and back: the bits in front are there
 * already, and those behind in the last byte become 0. */
GL_INLINE void gl_take_bytes(uint8_t *bytes, const uint8_t *at, uint32_t length, uint32_t shift) {
    if (shift == 0) {
        memcpy(bytes, at, length);
        return;
    }
    for (uint32_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(at[i] << shift | at[i + 1] >> (8 - shift));
    }
}

GL_INLINE void gl_put_bytes(uint8_t *at, const uint8_t *bytes, uint32_t length, uint32_t shift) {
    if (shift == 0) {
        memcpy(at, bytes, length);
        return;
    }
    for (uint32_t i = 0; i < length; i++) {
        at[i] |= (uint8_t)(bytes[i] >> shift);
        at[i + 1] = (uint8_t)(bytes[i] << (8 - shift));
    }
}

/* Whether two big-endian numbers of so many bytes are equal. */
GL_INLINE uint64_t gl_same_number(const uint8_t *left, uint32_t left_bytes, const uint8_t *right, uint32_t right_bytes) {
    uint32_t common = left_bytes < right_bytes ? left_bytes : right_bytes;
    const uint8_t *rest = left_bytes > right_bytes ? left : right;
    for (uint32_t i = 0, more = left_bytes + right_bytes - 2 * common; i < more; i++) {
        if (rest[i]) {
            return 0;
        }
    }
    return memcmp(left + left_bytes - common, right + right_bytes - common, common) == 0;
}

#endif
