/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The tags of a datagram where no switch writes them: the same rules as p4src/shared/tagging.p4 and marking.p4, from the
 * same policy. The byte is the IPv4 TOS: queue class (3 bits) ++ drop precedence (3) ++ ECN (2).
 */
#include "tx/tagging.h"

#include "base/bits.h"
#include "wire.h"

enum { CONTROL_CLASS = 7, BEST_EFFORT = 0, PROTECTED = 0, ECN_NOT_CAPABLE = 0, ECN_CAPABLE = 2 };

static unsigned find(const gl_range *ranges, unsigned count, unsigned layer, unsigned magnitude, unsigned otherwise) {
    for (const gl_range *r = ranges; r < ranges + count; r++)
        if (r->first_layer <= layer && layer <= r->last_layer && r->least <= magnitude && magnitude <= r->most)
            return r->value;
    return otherwise;
}

uint8_t tos_of(const gl_config *c, const uint8_t *h) {
    if (!c->tag) return 0;
    const unsigned kind = h[0] & 15, layer = get16(h + GL_AT_LAYER), magnitude = h[GL_AT_MAGNITUDE];
    unsigned class = CONTROL_CLASS, precedence = PROTECTED;
    if (kind == GL_KIND_DATA || kind == GL_KIND_REPAIR ||
        (kind == GL_KIND_TRACE && !(h[GL_AT_FLAGS] & GL_FLAG_RETURNED)))
        class = find(c->classes, c->class_count, layer, magnitude, BEST_EFFORT);
    if (kind == GL_KIND_DATA && get16(h + GL_AT_BUDGET))
        precedence = find(c->precedences, c->precedence_count, layer, magnitude, PROTECTED);
    return (uint8_t)(class << 5 | precedence << 2 | (precedence == PROTECTED ? ECN_CAPABLE : ECN_NOT_CAPABLE));
}
