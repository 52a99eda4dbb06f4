/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Which nodes make up a collective. Every rank lists its own ones; where two ranks exchange a message, both list its nodes
 * in the same order. A plan is all there is to an algorithm: what reduces, waits and repairs is the same for all.
 */
#include <stdlib.h>
#include <string.h>

#include "arithmetic/types.h"
#include "job/losses.h"
#include "plan/builder.h"

static range whole(const gl_config *c, uint64_t bytes) {
    const uint32_t stride = c->slice_bytes, slices = (uint32_t)((bytes + stride - 1) / stride);
    return (range){.slices = slices, .last_length = (uint32_t)(bytes - (uint64_t)(slices - 1) * stride)};
}

static range block(range r, unsigned index) {
    r.before = index * r.slices;
    return r;
}

static void from_all(builder *p, node *n) {
    for (unsigned k = 0; k < p->size; k++)
        if (rank_of(p, k) != p->c->rank) from(p, n, rank_of(p, k), PUSH), prompt(p, rank_of(p, k));
}

static bool multicasts(const builder *p) { return p->c->multicast && p->size == p->c->workers; }

static void to_all(builder *p, node *n) {
    if (multicasts(p)) {
        if (p->size > 1 || is_server(p->c)) to(p, n, ranks_of(p->c), PULL);
        return;
    }
    for (unsigned k = 1; k <= p->size; k++) {
        const unsigned rank = rank_of(p, (p->me + k) % p->size);
        if (rank != p->c->rank) to(p, n, rank, PULL);
    }
}

/* Whether the rest of a plan, whose owned part has begun before, divides the tensor as that part was. */
static bool goes_with(const plan *to, range its) {
    const node *owned = to->nodes[0];
    return owned->first == its.first && owned->slices == its.slices && owned->last_length == its.last_length;
}

/* Every owner of a part receives all contributions to it, and sends the result to all. Each rank begins with the part after
 * its own, so that not all fall on the same owner first. Who has no share owns nothing, and no message goes there. */
static void all_reduce(builder *p, const gl_submission *s, range r) {
    const gl_config *c = p->c;
    const unsigned parts = owners_among(c, p->size);
    const bool servers = c->servers && p->size == c->workers;
    for (unsigned k = 1; k <= parts; k++) {
        const unsigned part = (p->me + k) % parts, owner = servers ? c->workers + part : rank_of(p, part);
        const range its = shard(p, r, s->shares, part, parts);
        if (!its.slices) continue;
        /* A pair's pushes and pulls are one stream, but for multicast pulls. */
        p->meeting = servers ? p->size : (p->size - 1) * (multicasts(p) ? 2 : 1);
        if (owner == c->rank) {
            if (p->parts == OTHERS) {
                if (!goes_with(p->plan, its)) p->failed = true;
                continue;
            }
            node *n = add(p, its, s->in, s->out);
            result(p, n, true);
            from_all(p, n), to_all(p, n);
            continue;
        }
        if (p->parts == OWNED) continue;
        to(p, add(p, its, s->in, NULL), owner, PUSH);
        node *n = add(p, its, NULL, s->out);
        if (n) n->instead = s->in + (uint64_t)its.first * c->slice_bytes; /* a lost result keeps the own gradient */
        from(p, n, owner, PULL);
    }
}

static void reduce_to(builder *p, const uint8_t *in, uint8_t *out, range r, unsigned root) {
    if (root != p->c->rank) {
        to(p, add(p, r, in, NULL), root, PUSH);
        return;
    }
    node *n = add(p, r, in, out);
    result(p, n, true);
    from_all(p, n);
}

static void broadcast_from(builder *p, const uint8_t *in, uint8_t *out, range r, unsigned root) {
    if (root == p->c->rank)
        to_all(p, add(p, r, in, out));
    else
        from(p, add(p, r, NULL, out), root, PULL);
}

static void all_to_all(builder *p, const gl_submission *s, range r, uint64_t stride) {
    for (unsigned k = 1; k <= p->size; k++) {
        const unsigned other = (p->me + k) % p->size;
        const uint8_t *in = s->in + other * stride;
        uint8_t *out = s->out + other * stride;
        if (other == p->me) {
            add(p, r, in, out);
            continue;
        }
        to(p, add(p, block(r, other), in, NULL), rank_of(p, other), PUSH);
        from(p, add(p, r, NULL, out), rank_of(p, other), PUSH);
    }
}

/* Ring all-reduce (Patarasuk and Yuan, JPDC 2009), and its halves. A part's sum starts behind its owner and goes down the
 * ring to it, and from there the result goes on. The ring goes from rack to rack, so it leaves each once. A rank's slices
 * follow each other without a pause between the rounds: each is sent on as soon as it is reduced. */
static void ring(builder *p, const gl_submission *s, range r, uint64_t stride, bool reduces, bool gathers) {
    const unsigned last = (p->place + p->size - 1) % p->size, next = (p->place + 1) % p->size;
    const unsigned up = rank_at(p, next), down = rank_at(p, last);
    const bool shared = reduces && gathers; /* parts of one block; otherwise each part is a block */
    if (p->size == 1) {
        add(p, r, s->in, s->out);
        return;
    }
    p->exact = true;
    for (unsigned k = 1; reduces && k <= p->size; k++) {
        const unsigned part = (p->place + k) % p->size, member = member_at(p, part);
        const range its = shared ? shard(p, r, NULL, part, p->size) : block(r, member);
        const bool final = part == p->place;
        if (!its.slices) continue;
        node *n = add(p, its, s->in + (shared ? 0 : member * stride), final ? s->out : NULL);
        if (part != next) from(p, n, up, PUSH), prompt(p, up); /* the first of them is its own */
        if (!final) {
            to(p, n, down, PUSH);
            continue;
        }
        result(p, n, false);
        if (gathers) to(p, n, down, PULL);
    }
    for (unsigned k = 0; gathers && k < p->size; k++) {
        const unsigned part = (p->place + k) % p->size;
        const range its = shared ? shard(p, r, NULL, part, p->size) : r;
        if (!its.slices || (reduces && part == p->place)) continue;
        uint8_t *out = s->out + (shared ? 0 : member_at(p, part) * stride);
        node *n = add(p, its, part == p->place ? s->in : NULL, out);
        if (part != p->place) from(p, n, up, PULL);
        if (part != last) to(p, n, down, PULL);
    }
}

/* To the root, or from it, through all the others one after the other. */
static void chain(builder *p, const gl_submission *s, range r, unsigned root, bool reduces) {
    const unsigned next = member_at(p, (p->place + 1) % p->size);
    const unsigned up = rank_of(p, next), down = rank_at(p, (p->place + p->size - 1) % p->size);
    const bool is_root = p->me == root, is_last = next == root;
    p->exact = true;
    if (reduces) {
        node *n = add(p, r, s->in, is_root ? s->out : NULL);
        if (!is_last && p->size > 1) from(p, n, up, PUSH);
        if (is_root)
            result(p, n, false);
        else
            to(p, n, down, PUSH);
    } else {
        node *n = add(p, r, is_root ? s->in : NULL, s->out);
        if (!is_root) from(p, n, up, PULL);
        if (rank_of(p, root) != down && p->size > 1) to(p, n, down, PULL);
    }
}

static void make(builder *p, const gl_submission *s, uint64_t bytes) {
    const range r = whole(p->c, bytes);
    const uint64_t stride = s->stride ? s->stride : bytes;
    const bool rings = s->algorithm == GL_RING;
    if (rings || s->algorithm == GL_GRID) by_rack(p);
    if (p->failed) return;
    const bool one_to_one = rings || p->size == 1 || (s->collective == GL_BROADCAST && multicasts(p));
    p->meeting = one_to_one || s->collective >= GL_SEND ? 1 : p->size - 1;
    unsigned root = 0;
    while (root + 1 < p->size && rank_of(p, root) != s->root) root++;
    switch (s->collective) {
    case GL_ALL_REDUCE:
        if (rings)
            ring(p, s, r, 0, true, true);
        else if (s->algorithm == GL_STRAGGLAR)
            stragglar(p, s, r, bytes);
        else if (s->algorithm == GL_GRID)
            grid(p, s, r);
        else
            all_reduce(p, s, r);
        break;
    case GL_REDUCE_SCATTER:
        if (rings)
            ring(p, s, r, stride, true, false);
        else
            for (unsigned k = 1; k <= p->size; k++) {
                const unsigned part = (p->me + k) % p->size;
                reduce_to(p, s->in + part * stride, s->out, block(r, part), rank_of(p, part));
            }
        break;
    case GL_ALL_GATHER:
        if (rings)
            ring(p, s, r, stride, false, true);
        else
            for (unsigned k = 0; k < p->size; k++) {
                const unsigned part = (p->me + k) % p->size;
                broadcast_from(p, s->in, s->out + part * stride, r, rank_of(p, part));
            }
        break;
    case GL_BROADCAST:
        if (rings)
            chain(p, s, r, root, false);
        else
            broadcast_from(p, s->in, s->out, r, s->root);
        break;
    case GL_REDUCE:
        if (rings)
            chain(p, s, r, root, true);
        else
            reduce_to(p, s->in, s->out, r, s->root);
        break;
    case GL_ALL_TO_ALL: all_to_all(p, s, r, stride); break;
    case GL_SEND: to(p, add(p, r, s->in, NULL), s->root, PUSH); break;
    case GL_RECEIVE: {
        node *n = add(p, r, NULL, s->out);
        if (n) n->instead = s->out; /* what is lost stays as it was */
        from(p, n, s->root, PUSH);
    }
    }
}

static bool has_blocks(unsigned collective) { return collective == GL_REDUCE_SCATTER || collective == GL_ALL_TO_ALL; }

/* What a submission points to, and the tolerance that its layers have. */
static bool take_facts(plan *to, const gl_config *c, const gl_submission *s, uint32_t slices) {
    free(to->layers), free(to->magnitudes);
    to->layers = calloc(slices, sizeof *to->layers);
    to->magnitudes = s->magnitudes ? malloc(slices) : NULL;
    if (!to->layers || (s->magnitudes && !to->magnitudes)) return false;
    if (s->layers) memcpy(to->layers, s->layers, slices * sizeof *to->layers);
    if (s->magnitudes) memcpy(to->magnitudes, s->magnitudes, slices);
    to->loss_class = class_of(c, to->layers[0]);
    for (uint32_t i = 1; i < slices; i++)
        if (to->layers[i] != to->layers[i - 1] && class_of(c, to->layers[i]) != to->loss_class) return false;
    to->push_loss = s->push_loss, to->pull_loss = s->pull_loss;
    return s->push_loss <= tolerated_of(c, s->tensor, to->loss_class, false) &&
           s->pull_loss <= tolerated_of(c, s->tensor, to->loss_class, true);
}

bool plan_worker(plan *to, const gl_config *c, const gl_submission *s) {
    const uint64_t bytes = s->elements * gl_element_bytes(s->element_type);
    builder p = {.c = c, .plan = to, .group = s->group, .size = s->group ? s->group_size : c->workers};
    if (s->late && (to->node_count || !s->in)) p.parts = to->node_count ? OTHERS : OWNED;
    while (rank_of(&p, p.me) != c->rank) p.me++;
    p.reduction = gl_is_reduction(s->collective) ? s->reduction : 0;
    const uint8_t encoding = (uint8_t)(s->element_type | p.reduction << 4);
    if (to->node_count && encoding != to->encoding) return false;
    to->step = s->step, to->tensor = s->tensor, to->critical = s->critical, to->late = s->late;
    to->encoding = encoding;
    if (!take_facts(to, c, s, whole(c, bytes).slices * (has_blocks(s->collective) ? p.size : 1))) return false;
    make(&p, s, bytes);
    free(p.places);
    return !p.failed && (p.parts != OWNED || to->node_count);
}

bool plan_server(plan *to, const gl_config *c, uint32_t slices, uint16_t layer) {
    builder p = {.c = c, .plan = to, .size = c->workers, .reduction = reduction_of(to->encoding)};
    /* Without multicast a server's own link carries a copy for every worker. */
    p.meeting = multicasts(&p) ? c->servers : p.size;
    to->pull_loss = to->tensor < GL_FIRST_GROUP ? tolerated(c, to->loss_class, true) : 0;
    to->late = c->late_steps && p.reduction == GL_MEAN_OF_ARRIVED && to->tensor < GL_FIRST_GROUP;
    to->layers = malloc(slices * sizeof *to->layers);
    for (uint32_t i = 0; to->layers && i < slices; i++) to->layers[i] = layer;
    node *n = add(&p, (range){.slices = slices}, NULL, NULL);
    result(&p, n, true);
    from_all(&p, n), to_all(&p, n);
    return !p.failed && to->layers;
}

static void links_free(link *l) {
    for (link *next; l; l = next) next = l->next, free(l->segments), free(l);
}

void plan_free(plan *p) {
    links_free(p->outgoing), links_free(p->incoming);
    for (unsigned i = 0; i < p->node_count; i++) {
        node *n = p->nodes[i];
        free(n->from), free(n->to), free(n->awaited), free(n->waiting), free(n->added), free(n->results), free(n->empty),
            free(n);
    }
    free(p->links), free(p->nodes), free(p->layers), free(p->magnitudes), free(p->copy), free(p->turns);
}
