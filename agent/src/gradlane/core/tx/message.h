/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A message that is sent: its slices and their headers.
 */
#ifndef GRADLANE_MESSAGE_H
#define GRADLANE_MESSAGE_H

#include <string.h>

#include "base/bits.h"
#include "tx/tx.h"

enum { LAYER_SHIFT = 48 }; /* of a key: layer, then age */

/* What is sent of a slice, and with which facts. */
typedef struct {
    const uint8_t *bytes;
    uint8_t *header; /* in front of `bytes`; NULL: there is no room for it */
    uint16_t length, layer;
    uint8_t magnitude;
} view;

static inline view view_of(const tx *x, const tx_message *m, uint32_t slice) {
    const gl_config *c = &x->job->config;
    const plan *p = m->plan;
    const segment *s = find_segment(m->link, slice);
    const node *n = s->node;
    const uint32_t i = slice - s->start;
    view v = {.length = (uint16_t)length_of(c, n, i), .layer = p->layers[n->first + i], .magnitude = 255};
    if (!n->from_count) {
        v.bytes = n->own + (uint64_t)i * c->slice_bytes;
        if (!m->link->pull && p->magnitudes) v.magnitude = p->magnitudes[n->first + i];
    } else if (test_bit(n->empty, i))
        v.length = 0;
    else if (n->results[i])
        v.bytes = n->results[i]->bytes, v.header = n->results[i]->header;
    return v;
}

/* By which messages are ordered: the layer of its next slice. */
static inline uint64_t key_of(const tx *x, const tx_message *m) {
    const uint32_t next = m->queue ? m->queue[m->sent] : m->sent;
    return (uint64_t)view_of(x, m, next).layer << LAYER_SHIFT | m->order;
}

static inline void fill_header(uint8_t *h, const tx_message *m, unsigned kind, uint32_t slice, const view *v) {
    memcpy(h, m->header, GL_HEADER);
    h[0] |= (uint8_t)kind;
    h[GL_AT_MAGNITUDE] = v->magnitude;
    put16(h + GL_AT_LAYER, v->layer);
    put16(h + GL_AT_SLICE, (uint16_t)slice);
    put16(h + GL_AT_LENGTH, v->length);
}

static inline void put_header(const tx *x, uint8_t *h, const tx_message *m, unsigned kind, uint32_t slice) {
    const view v = view_of(x, m, slice);
    fill_header(h, m, kind, slice, &v);
}

/* A rank; the number of ranks: multicast. */
static inline unsigned lane_number(const tx *x, const lane *l) { return (unsigned)(l - x->lanes); }

static inline receiver *receiver_of(const tx *x, const lane *l, unsigned rank) {
    return &l->flow.receivers[lane_number(x, l) == x->job->ranks ? rank : 0];
}

#endif
