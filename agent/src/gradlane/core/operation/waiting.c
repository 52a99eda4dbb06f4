/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Contributions to a node.
 */
#include "operation/waiting.h"

#include <stdlib.h>

#include "arithmetic/reduce.h"
#include "arithmetic/types.h"
#include "rx/rx.h"

enum { FEW = 16 }; /* contributions to a slice */

void place_contributions(node *n, unsigned rank) {
    for (unsigned k = 0; k < n->from_count; k++) {
        const link *l = n->from[k].link;
        l->segments[find_segment(l, n->from[k].start) - l->segments].from = k;
        n->own_at += l->rank < rank;
    }
}

bool waiting_new(node *n) {
    n->waiting = calloc((size_t)n->slices * n->from_count, sizeof *n->waiting);
    n->added = calloc(n->slices, sizeof *n->added);
    return n->waiting && n->added;
}

static const uint8_t *own_of(const gl_config *c, const node *n, uint32_t i) { return n->own + (uint64_t)i * c->slice_bytes; }

/* Of those before `until`. */
static unsigned sources_of(const gl_config *c, const node *n, uint32_t i, unsigned until, unsigned fresh, const uint8_t *payload,
                           const uint8_t **sources) {
    const bool summed = n->waiting && n->added[i] > 1;
    unsigned count = 0;
    if (summed) sources[count++] = waiting_of(n, i)[0]->bytes;
    for (unsigned k = summed ? n->added[i] : 0; k < until; k++) {
        if (n->own && k == n->own_at) sources[count++] = own_of(c, n, i);
        if (payload && k == fresh)
            sources[count++] = payload;
        else if (n->waiting && waiting_of(n, i)[k])
            sources[count++] = waiting_of(n, i)[k]->bytes;
    }
    return count;
}

unsigned contributions(const gl_config *c, const node *n, uint32_t i, unsigned fresh, const uint8_t *payload,
                       const uint8_t **sources, unsigned *contributors) {
    const unsigned added = n->waiting ? n->added[i] : 0;
    unsigned count = sources_of(c, n, i, n->from_count, fresh, payload, sources);
    if (n->own && n->own_at == n->from_count) sources[count++] = own_of(c, n, i);
    *contributors = count + (added > 1 ? added - 1 + (n->own && n->own_at < added) : 0);
    return count;
}

/* Few stay in a near cache till they are added in one go, which is faster then. Sums of 16 bits would be rounded once for each, and
 * the own contribution of a swap's `final` node is not there before the last. */
static bool is_added_up(const node *n) {
    return n->from_count > FEW && !n->partial && gl_element_bytes(type_of(n->plan->encoding)) != 2;
}

/* Adds to the sum what follows it without a gap, `payload` of `fresh` and those behind it. */
static void add_up(job *j, node *n, uint32_t i, unsigned fresh, const uint8_t *payload, const uint8_t **sources) {
    const uint8_t encoding = n->plan->encoding;
    slot **waiting = waiting_of(n, i);
    unsigned until = n->added[i];
    while (until < n->from_count && ((payload && until == fresh) || waiting[until])) until++;
    if (until == n->added[i]) return;
    const unsigned count = sources_of(&j->config, n, i, until, fresh, payload, sources);
    reduce_slice(waiting[0]->bytes, sources, count, reduction_of(encoding), 1, length_of(&j->config, n, i), type_of(encoding));
    for (unsigned k = n->added[i]; k < until; k++) {
        if (waiting[k]) rx_drop(j, waiting[k]);
        waiting[k] = NULL;
    }
    n->added[i] = (uint16_t)until;
}

void waiting_put_kept(job *j, node *n, uint32_t i, unsigned from, slot *kept, const uint8_t **sources) {
    waiting_of(n, i)[from] = kept;
    if (!kept || from != n->added[i] || !is_added_up(n)) return;
    if (!from) n->added[i] = 1;
    add_up(j, n, i, from, NULL, sources);
}

void waiting_put(job *j, node *n, uint32_t i, unsigned from, const uint8_t *payload, uint32_t length, const uint8_t **sources) {
    if (from && from == n->added[i])
        add_up(j, n, i, from, payload, sources);
    else
        waiting_put_kept(j, n, i, from, rx_keep(j, payload, length), sources);
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
