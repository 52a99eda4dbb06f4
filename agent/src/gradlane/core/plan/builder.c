/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How a collective's nodes and links are written down.
 */
#include "plan/builder.h"

#include <stdlib.h>

unsigned rank_of(const builder *p, unsigned member) { return p->group ? p->group[member] : member; }

range shard(const builder *p, range r, const uint32_t *shares, unsigned index, unsigned parts) {
    const uint32_t first = gl_shard_start(r.slices, shares, index, parts);
    const uint32_t end = gl_shard_start(r.slices, shares, index + 1, parts);
    return (range){first, end - first, end == r.slices ? r.last_length : p->c->slice_bytes, 0};
}

node *add(builder *p, range r, const uint8_t *own, uint8_t *out) {
    node *n = calloc(1, sizeof *n), **nodes = realloc(p->plan->nodes, (p->plan->node_count + 1) * sizeof *nodes);
    if (nodes) p->plan->nodes = nodes;
    if (!n || !nodes) return free(n), p->failed = true, NULL;
    nodes[p->plan->node_count++] = n;
    const uint64_t stride = p->c->slice_bytes, offset = r.first * stride;
    n->plan = p->plan;
    n->first = r.before + r.first, n->slices = r.slices, n->last_length = r.last_length;
    n->bytes = (r.slices - 1) * stride + r.last_length;
    n->own = own ? own + offset : NULL;
    n->out = out ? out + offset : NULL;
    n->divisor = 1;
    return n;
}

void result(const builder *p, node *n, bool counted) {
    if (!n || (p->reduction != GL_MEAN && p->reduction != GL_MEAN_OF_ARRIVED)) return;
    n->divisor = counted && p->reduction == GL_MEAN_OF_ARRIVED ? 0 : p->size;
}

link *link_of(builder *p, link **list, unsigned rank, bool pull) {
    while (*list && ((*list)->rank != rank || (*list)->pull != pull)) list = &(*list)->next;
    if (*list || !(*list = calloc(1, sizeof **list))) return *list;
    (*list)->rank = (uint16_t)rank, (*list)->pull = pull, (*list)->exact = p->exact;
    (*list)->meeting = (uint16_t)p->meeting;
    return *list;
}

static void join(builder *p, node *n, link **list, unsigned rank, bool pull, edge **edges, unsigned *count) {
    link *l = n ? link_of(p, list, rank, pull) : NULL;
    segment *segments = l ? realloc(l->segments, (l->count + 1) * sizeof *segments) : NULL;
    if (segments) l->segments = segments;
    edge *more = segments ? realloc(*edges, (*count + 1) * sizeof *more) : NULL;
    if (more) *edges = more;
    if (!more || l->slices + n->slices > GL_MAX_SLICES) {
        p->failed = true;
        return;
    }
    segments[l->count++] = (segment){n, l->slices, 0};
    unsigned at = (*count)++;
    for (; at && more[at - 1].link->rank > rank; at--) more[at] = more[at - 1];
    more[at] = (edge){l, l->slices};
    l->slices += n->slices;
}

void from(builder *p, node *n, unsigned rank, bool pull) {
    if (n) join(p, n, &p->plan->incoming, rank, pull, &n->from, &n->from_count);
}

void prompt(builder *p, unsigned rank) {
    link *l = link_of(p, &p->plan->incoming, rank, PUSH);
    if (l) l->prompt = true;
}

void to(builder *p, node *n, unsigned rank, bool pull) {
    if (n) join(p, n, &p->plan->outgoing, rank, pull, &n->to, &n->to_count);
}
