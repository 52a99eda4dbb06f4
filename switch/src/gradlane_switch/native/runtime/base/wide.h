/* SPDX-License-Identifier: Apache-2.0
 * Integers of more than 64 bits, as words of 64, the lowest first. Negative ones are two's complement.
 *
 * A value of K words is a struct, so that generated expressions can nest. GL_WIDE(K, HOW) defines the type gl_wK and what
 * can be done with it; the loops below are its bodies, and their counts are constants. HOW is GL_INLINE for short values,
 * which are addresses and the like, and GL_CALLED for long ones: code for these at every place where they are used takes
 * seconds to compile, and does not run faster. */
#ifndef GL_WIDE_H
#define GL_WIDE_H

#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "base/inline.h"

#define GL_CALLED static __attribute__((noinline))

/* ---- 64 bits ---- */

GL_INLINE uint64_t gl_shift_left(uint64_t value, uint64_t distance) {
    return distance < 64 ? value << distance : 0;
}

GL_INLINE uint64_t gl_shift_right(uint64_t value, uint64_t distance) {
    return distance < 64 ? value >> distance : 0;
}

GL_INLINE uint64_t gl_shift_right_signed(uint64_t value, uint64_t distance) {
    return (uint64_t)((int64_t)value >> (distance < 64 ? distance : 63));
}

/* Nothing is left of a division by zero. */
GL_INLINE uint64_t gl_quotient(uint64_t a, uint64_t b) {
    return b ? a / b : 0;
}

GL_INLINE uint64_t gl_remainder(uint64_t a, uint64_t b) {
    return b ? a % b : 0;
}

/* The low `width` bits (1..64) as a two's complement number. */
GL_INLINE uint64_t gl_extend(uint64_t value, uint32_t width) {
    return (uint64_t)((int64_t)(value << (64 - width)) >> (64 - width));
}

/* A signed number, kept within what `width` bits (1..63) hold: unsigned, and signed. */
GL_INLINE uint64_t gl_saturate(uint64_t value, uint32_t width) {
    uint64_t most = (UINT64_C(1) << width) - 1;
    return (int64_t)value < 0 ? 0 : value > most ? most : value;
}

GL_INLINE uint64_t gl_saturate_signed(uint64_t value, uint32_t width) {
    int64_t most = (int64_t)((UINT64_C(1) << (width - 1)) - 1);
    return (uint64_t)((int64_t)value > most ? most : (int64_t)value < -most - 1 ? -most - 1 : (int64_t)value);
}

/* ---- Words ---- */

GL_INLINE void gl_wide_load(uint64_t *out, uint32_t words, const uint64_t *from, uint32_t count) {
    for (uint32_t i = 0; i < words; i++) {
        out[i] = i < count ? from[i] : 0;
    }
}

GL_INLINE void gl_wide_add(uint64_t *out, const uint64_t *a, const uint64_t *b, uint32_t words) {
    unsigned __int128 sum = 0;
    for (uint32_t i = 0; i < words; i++) {
        sum += (unsigned __int128)a[i] + b[i];
        out[i] = (uint64_t)sum;
        sum >>= 64;
    }
}

GL_INLINE void gl_wide_subtract(uint64_t *out, const uint64_t *a, const uint64_t *b, uint32_t words) {
    uint64_t borrow = 0;
    for (uint32_t i = 0; i < words; i++) {
        unsigned __int128 difference = (unsigned __int128)a[i] - b[i] - borrow;
        out[i] = (uint64_t)difference;
        borrow = (uint64_t)(difference >> 64) & 1;
    }
}

GL_INLINE void gl_wide_multiply(uint64_t *out, const uint64_t *a, const uint64_t *b, uint32_t words) {
    for (uint32_t i = 0; i < words; i++) {
        out[i] = 0;
    }
    for (uint32_t i = 0; i < words; i++) {
        uint64_t carry = 0;
        for (uint32_t j = 0; i + j < words; j++) {
            unsigned __int128 part = (unsigned __int128)a[i] * b[j] + out[i + j] + carry;
            out[i + j] = (uint64_t)part;
            carry = (uint64_t)(part >> 64);
        }
    }
}

#define GL_WIDE_BITWISE(name, op)                                                                          \
    GL_INLINE void gl_wide_##name(uint64_t *out, const uint64_t *a, const uint64_t *b, uint32_t words) {   \
        for (uint32_t i = 0; i < words; i++) {                                                             \
            out[i] = a[i] op b[i];                                                                         \
        }                                                                                                  \
    }
GL_WIDE_BITWISE(and, &)
GL_WIDE_BITWISE(or, |)
GL_WIDE_BITWISE(xor, ^)

GL_INLINE void gl_wide_left(uint64_t *out, const uint64_t *a, uint64_t distance, uint32_t words) {
    uint64_t whole = distance / 64, rest = distance % 64;
    for (uint32_t i = 0; i < words; i++) {
        uint64_t high = i >= whole ? a[i - whole] : 0, low = i > whole ? a[i - whole - 1] : 0;
        out[i] = rest ? high << rest | low >> (64 - rest) : high;
    }
}

/* `fill` is what comes in from above: 0, or all ones for a negative number. */
GL_INLINE void gl_wide_right(uint64_t *out, const uint64_t *a, uint64_t distance, uint64_t fill, uint32_t words) {
    uint64_t whole = distance / 64, rest = distance % 64;
    for (uint32_t i = 0; i < words; i++) {
        uint64_t low = whole < words - i ? a[i + whole] : fill;
        uint64_t high = words - i > 1 && whole < words - i - 1 ? a[i + whole + 1] : fill;
        out[i] = rest ? low >> rest | high << (64 - rest) : low;
    }
}

GL_INLINE int gl_wide_equal(const uint64_t *a, const uint64_t *b, uint32_t words) {
    uint64_t difference = 0;
    for (uint32_t i = 0; i < words; i++) {
        difference |= a[i] ^ b[i];
    }
    return difference == 0;
}

GL_INLINE int gl_wide_less(const uint64_t *a, const uint64_t *b, uint32_t words) {
    int less = 0;
    for (uint32_t i = 0; i < words; i++) {
        less = a[i] < b[i] || (a[i] == b[i] && less);
    }
    return less;
}

/* A bit at a time: programs hardly ever divide such numbers. */
static inline void gl_wide_divide(uint64_t *quotient, uint64_t *remainder, const uint64_t *a, const uint64_t *b,
                                  uint32_t words) {
    uint64_t divisor = 0;
    for (uint32_t i = 0; i < words; i++) {
        quotient[i] = remainder[i] = 0;
        divisor |= b[i];
    }
    for (uint32_t i = 64 * words; divisor && i-- > 0;) {
        uint64_t carry = a[i / 64] >> i % 64 & 1;
        for (uint32_t j = 0; j < words; j++) {
            uint64_t top = remainder[j] >> 63;
            remainder[j] = remainder[j] << 1 | carry;
            carry = top;
        }
        if (carry || !gl_wide_less(remainder, b, words)) {
            gl_wide_subtract(remainder, remainder, b, words);
            quotient[i / 64] |= UINT64_C(1) << i % 64;
        }
    }
}

/* Keeps the low `width` bits. */
GL_INLINE void gl_wide_mask(uint64_t *a, uint32_t width, uint32_t words) {
    for (uint32_t i = width / 64; i < words; i++) {
        a[i] &= i == width / 64 && width % 64 ? (UINT64_C(1) << width % 64) - 1 : 0;
    }
}

/* Bit width-1 is the sign: repeats it above. */
GL_INLINE void gl_wide_extend(uint64_t *a, uint32_t width, uint32_t words) {
    uint64_t top = a[(width - 1) / 64], sign = -(top >> (width - 1) % 64 & 1);
    if (width % 64) {
        a[width / 64] = gl_extend(top, width % 64);
    }
    for (uint32_t i = (width + 63) / 64; i < words; i++) {
        a[i] = sign;
    }
}

/* A signed number: 1 if no more than `width` bits are needed to hold it, the sign not counted. */
GL_INLINE int gl_wide_fits(const uint64_t *a, uint32_t width, uint32_t words) {
    uint64_t fill = -(a[words - 1] >> 63);
    if (width % 64 && (a[width / 64] ^ fill) >> width % 64) {
        return 0;
    }
    for (uint32_t i = (width + 63) / 64; i < words; i++) {
        if (a[i] != fill) {
            return 0;
        }
    }
    return 1;
}

/* A signed number, kept within what `width` bits hold. */
GL_INLINE void gl_wide_saturate(uint64_t *a, uint32_t width, uint32_t words) {
    uint64_t negative = a[words - 1] >> 63;
    if (negative || !gl_wide_fits(a, width, words)) {
        for (uint32_t i = 0; i < words; i++) {
            a[i] = negative ? 0 : ~UINT64_C(0);
        }
        gl_wide_mask(a, width, words);
    }
}

GL_INLINE void gl_wide_saturate_signed(uint64_t *a, uint32_t width, uint32_t words) {
    uint64_t negative = a[words - 1] >> 63;
    if (!gl_wide_fits(a, width - 1, words)) {
        for (uint32_t i = 0; i < words; i++) {
            a[i] = ~UINT64_C(0);
        }
        gl_wide_mask(a, width - 1, words);
        for (uint32_t i = 0; negative && i < words; i++) {
            a[i] = ~a[i];
        }
    }
}

/* A shift's distance or an index: what has no place in 64 bits is as far as can be. */
GL_INLINE uint64_t gl_wide_clamp(const uint64_t *a, uint32_t words) {
    uint64_t above = 0;
    for (uint32_t i = 1; i < words; i++) {
        above |= a[i];
    }
    return above ? ~UINT64_C(0) : a[0];
}

/* A number of so many bytes, big-endian, in a packet: taken out of it, and put into it. */
GL_INLINE void gl_wide_take(uint64_t *out, const uint8_t *bytes, uint32_t octets, uint32_t words) {
    uint32_t whole = octets / 8, rest = octets % 8;
    for (uint32_t i = 0; i < whole; i++) {
        out[i] = gl_get64(bytes + octets - 8 * (i + 1));
    }
    for (uint32_t i = whole; i < words; i++) {
        out[i] = 0;
    }
    for (uint32_t i = 0; i < rest; i++) {
        out[whole] = out[whole] << 8 | bytes[i];
    }
}

GL_INLINE void gl_wide_put(uint8_t *bytes, const uint64_t *a, uint32_t octets) {
    uint32_t whole = octets / 8, rest = octets % 8;
    for (uint32_t i = 0; i < whole; i++) {
        gl_put64(bytes + octets - 8 * (i + 1), a[i]);
    }
    for (uint32_t i = 0; i < rest; i++) {
        bytes[i] = (uint8_t)(a[whole] >> 8 * (rest - 1 - i));
    }
}

/* ---- The type ---- */

/* `_into`: the result may take the place of an operand, except that of a product. */
#define GL_WIDE_ARITHMETIC(K, HOW, name)                                                     \
    HOW void gl_w##K##_##name##_into(gl_w##K *out, const gl_w##K *a, const gl_w##K *b) {     \
        gl_wide_##name(out->w, a->w, b->w, K);                                               \
    }                                                                                        \
    GL_INLINE gl_w##K gl_w##K##_##name(gl_w##K a, gl_w##K b) {                               \
        gl_w##K out;                                                                         \
        gl_w##K##_##name##_into(&out, &a, &b);                                               \
        return out;                                                                          \
    }

#define GL_WIDE_DIVISION(K, HOW, name)                            \
    HOW gl_w##K gl_w##K##_##name(gl_w##K a, gl_w##K b) {          \
        gl_w##K quotient, remainder;                              \
        gl_wide_divide(quotient.w, remainder.w, a.w, b.w, K);     \
        return name;                                              \
    }

#define GL_WIDE_IN_PLACE(K, HOW, name)                            \
    HOW gl_w##K gl_w##K##_##name(gl_w##K a, uint32_t width) {     \
        gl_wide_##name(a.w, width, K);                            \
        return a;                                                 \
    }

#define GL_WIDE(K, HOW)                                                                                  \
    typedef struct {                                                                                     \
        uint64_t w[K];                                                                                   \
    } gl_w##K;                                                                                           \
    GL_WIDE_ARITHMETIC(K, HOW, and)                                                                      \
    GL_WIDE_ARITHMETIC(K, HOW, or)                                                                       \
    GL_WIDE_ARITHMETIC(K, HOW, xor)                                                                      \
    GL_WIDE_ARITHMETIC(K, HOW, add)                                                                      \
    GL_WIDE_ARITHMETIC(K, HOW, subtract)                                                                 \
    GL_WIDE_ARITHMETIC(K, HOW, multiply)                                                                 \
    GL_WIDE_DIVISION(K, HOW, quotient)                                                                   \
    GL_WIDE_DIVISION(K, HOW, remainder)                                                                  \
    GL_WIDE_IN_PLACE(K, HOW, mask)                                                                       \
    GL_WIDE_IN_PLACE(K, HOW, extend)                                                                     \
    GL_WIDE_IN_PLACE(K, HOW, saturate)                                                                   \
    GL_WIDE_IN_PLACE(K, HOW, saturate_signed)                                                            \
    HOW gl_w##K gl_w##K##_load(const uint64_t *from, uint32_t count) {                                   \
        gl_w##K out;                                                                                     \
        gl_wide_load(out.w, K, from, count);                                                             \
        return out;                                                                                      \
    }                                                                                                    \
    HOW void gl_w##K##_take(gl_w##K *out, const uint8_t *bytes, uint32_t octets) {                       \
        gl_wide_take(out->w, bytes, octets, K);                                                          \
    }                                                                                                    \
    HOW void gl_w##K##_put(uint8_t *bytes, const gl_w##K *a, uint32_t octets) {                          \
        gl_wide_put(bytes, a->w, octets);                                                                \
    }                                                                                                    \
    /* What a field holds: 0 until it is set. */                                                         \
    GL_INLINE const gl_w##K *gl_w##K##_held(const gl_w##K *field, int set) {                             \
        static const gl_w##K zero;                                                                       \
        return set ? field : &zero;                                                                      \
    }                                                                                                    \
    GL_INLINE gl_w##K gl_w##K##_of(uint64_t value) { return gl_w##K##_load(&value, 1); }                 \
    GL_INLINE gl_w##K gl_w##K##_of_signed(uint64_t value) { return gl_w##K##_extend(gl_w##K##_of(value), 64); } \
    HOW gl_w##K gl_w##K##_not(gl_w##K a) {                                                               \
        for (uint32_t i = 0; i < K; i++) {                                                               \
            a.w[i] = ~a.w[i];                                                                            \
        }                                                                                                \
        return a;                                                                                        \
    }                                                                                                    \
    HOW gl_w##K gl_w##K##_left(gl_w##K a, uint64_t distance) {                                           \
        gl_w##K out;                                                                                     \
        gl_wide_left(out.w, a.w, distance, K);                                                           \
        return out;                                                                                      \
    }                                                                                                    \
    HOW gl_w##K gl_w##K##_right(gl_w##K a, uint64_t distance) {                                          \
        gl_w##K out;                                                                                     \
        gl_wide_right(out.w, a.w, distance, 0, K);                                                       \
        return out;                                                                                      \
    }                                                                                                    \
    HOW gl_w##K gl_w##K##_right_signed(gl_w##K a, uint64_t distance) {                                   \
        gl_w##K out;                                                                                     \
        gl_wide_right(out.w, a.w, distance, -(a.w[K - 1] >> 63), K);                                     \
        return out;                                                                                      \
    }                                                                                                    \
    HOW uint64_t gl_w##K##_equal(gl_w##K a, gl_w##K b) { return (uint64_t)gl_wide_equal(a.w, b.w, K); }  \
    HOW uint64_t gl_w##K##_less(gl_w##K a, gl_w##K b) { return (uint64_t)gl_wide_less(a.w, b.w, K); }    \
    HOW uint64_t gl_w##K##_less_signed(gl_w##K a, gl_w##K b) {                                           \
        a.w[K - 1] ^= UINT64_C(1) << 63;                                                                 \
        b.w[K - 1] ^= UINT64_C(1) << 63;                                                                 \
        return (uint64_t)gl_wide_less(a.w, b.w, K);                                                      \
    }                                                                                                    \
    HOW uint64_t gl_w##K##_clamp(gl_w##K a) { return gl_wide_clamp(a.w, K); }

#endif
