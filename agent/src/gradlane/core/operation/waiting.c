/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Contributions to a node.
 */
#include "operation/waiting.h"

#include <stdlib.h>

#include "rx/rx.h"

void place_contributions(node *n, unsigned rank) {
    for (unsigned k = 0; k < n->from_count; k++) {
        const link *l = n->from[k].link;
        l->segments[find_segment(l, n->from[k].start) - l->segments].from = k;
        n->own_at += l->rank < rank;
    }
}

bool waiting_new(node *n) { return (n->waiting = calloc((size_t)n->slices * n->from_count, sizeof *n->waiting)); }

unsigned contributions(const gl_config *c, const node *n, uint32_t i, unsigned fresh, const uint8_t *payload,
                       const uint8_t **sources) {
    unsigned count = 0;
    for (unsigned k = 0; k <= n->from_count; k++) {
        if (n->own && k == n->own_at) sources[count++] = n->own + (uint64_t)i * c->slice_bytes;
        if (k == n->from_count) break;
        if (payload && k == fresh)
            sources[count++] = payload;
        else if (n->waiting && waiting_of(n, i)[k])
            sources[count++] = waiting_of(n, i)[k]->bytes;
    }
    return count;
}

void waiting_drop(job *j, node *n, uint32_t i) {
    for (unsigned k = 0; n->waiting && k < n->from_count; k++) {
        slot **at = &waiting_of(n, i)[k];
        if (*at) rx_drop(j, *at);
        *at = NULL;
    }
}

void waiting_drop_all(job *j, node *n) {
    for (uint32_t i = n->floor; n->waiting && i < n->slices; i++) waiting_drop(j, n, i);
}
