/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How a collective's nodes and links are written down.
 */
#include "plan/builder.h"

#include <stdlib.h>

unsigned rank_of(const builder *p, unsigned member) { return p->group ? p->group[member] : member; }
unsigned member_at(const builder *p, unsigned place) { return p->places ? p->places[place] : place; }
unsigned rank_at(const builder *p, unsigned place) { return rank_of(p, member_at(p, place)); }

static int ascending(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

void by_rack(builder *p) {
    const uint16_t *racks = p->c->racks;
    bool ordered = true;
    for (unsigned k = 1; racks && k < p->size; k++) ordered &= racks[rank_of(p, k - 1)] <= racks[rank_of(p, k)];
    p->place = p->me;
    if (ordered) return;
    uint32_t *keys = malloc(p->size * sizeof *keys);
    p->places = malloc(p->size * sizeof *p->places);
    if (!keys || !p->places) {
        free(keys);
        p->failed = true;
        return;
    }
    for (unsigned k = 0; k < p->size; k++) keys[k] = (uint32_t)racks[rank_of(p, k)] << 16 | k;
    qsort(keys, p->size, sizeof *keys, ascending);
    for (unsigned k = 0; k < p->size; k++) {
        p->places[k] = (uint16_t)keys[k];
        if (p->places[k] == p->me) p->place = k;
    }
    free(keys);
}

range shard(const builder *p, range r, const uint32_t *shares, unsigned index, unsigned parts) {
    const uint32_t first = gl_shard_start(r.slices, shares, index, parts);
    const uint32_t end = gl_shard_start(r.slices, shares, index + 1, parts);
    return (range){first, end - first, end == r.slices ? r.last_length : p->c->slice_bytes, 0};
}

/* An array with room for one more, in place of one that has grown so. NULL: memory is out. */
static void *grow(void *array, unsigned count, size_t size) {
    return count & (count - 1) ? array : realloc(array, (count ? 2 * count : 1) * size);
}

node *add(builder *p, range r, const uint8_t *own, uint8_t *out) {
    node *n = calloc(1, sizeof *n), **nodes = grow(p->plan->nodes, p->plan->node_count, sizeof *nodes);
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

/* The multicast group's links are behind those of the ranks. */
static bool links_new(plan *p, unsigned ranks) {
    p->ends[OUTGOING] = &p->outgoing, p->ends[INCOMING] = &p->incoming;
    return (p->links = calloc(4 * (ranks + 1), sizeof *p->links));
}

link *link_of(builder *p, bool incoming, unsigned rank, bool pull) {
    plan *to = p->plan;
    link *l = find_link(to, incoming, rank, pull);
    if (l || (!to->links && !links_new(to, ranks_of(p->c))) || !(l = calloc(1, sizeof *l))) return l;
    l->rank = (uint16_t)rank, l->pull = pull, l->exact = p->exact, l->meeting = (uint16_t)p->meeting;
    to->links[4 * rank + 2 * incoming + pull] = *to->ends[incoming] = l;
    to->ends[incoming] = &l->next;
    return l;
}

static void join(builder *p, node *n, bool incoming, unsigned rank, bool pull, edge **edges, unsigned *count) {
    link *l = n ? link_of(p, incoming, rank, pull) : NULL;
    segment *segments = l ? grow(l->segments, l->count, sizeof *segments) : NULL;
    if (segments) l->segments = segments;
    edge *more = segments ? grow(*edges, *count, sizeof *more) : NULL;
    if (more) *edges = more;
    if (!more || l->slices + n->slices > GL_MAX_SLICES) {
        p->failed = true;
        return;
    }
    segments[l->count++] = (segment){.node = n, .start = l->slices};
    unsigned at = (*count)++;
    for (; at && more[at - 1].link->rank > rank; at--) more[at] = more[at - 1];
    more[at] = (edge){l, l->slices};
    l->slices += n->slices;
}

void from(builder *p, node *n, unsigned rank, bool pull) {
    if (n) join(p, n, INCOMING, rank, pull, &n->from, &n->from_count);
}

void prompt(builder *p, unsigned rank) {
    link *l = link_of(p, INCOMING, rank, PUSH);
    if (l) l->prompt = true;
}

void to(builder *p, node *n, unsigned rank, bool pull) {
    if (n) join(p, n, OUTGOING, rank, pull, &n->to, &n->to_count);
}
