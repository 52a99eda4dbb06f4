/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The 16 bits of a header that say who sends the datagram, and by which way: `way` ++ `source`.
 */
#ifndef GRADLANE_SENDER_H
#define GRADLANE_SENDER_H

#include "base/bits.h"
#include "wire.h"

enum { SOURCE_MASK = (1 << GL_SOURCE_BITS) - 1 };

static inline unsigned get_source(const uint8_t *h) { return get16(h + GL_AT_SOURCE) & SOURCE_MASK; }
static inline unsigned get_way(const uint8_t *h) { return get16(h + GL_AT_SOURCE) >> GL_SOURCE_BITS; }
static inline void put_sender(uint8_t *h, unsigned way, unsigned source) {
    put16(h + GL_AT_SOURCE, (uint16_t)(way << GL_SOURCE_BITS | source));
}

#endif
