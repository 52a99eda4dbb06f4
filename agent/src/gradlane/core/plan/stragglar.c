/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The nodes of an all-reduce by StragglAR (Devraj, Ding, Kumar and Kleinberg, arXiv 2505.23523). The others reduce a chunk each
 * while the straggler is late. Then it swaps with one after the other, contribution against partial sum, so both have the
 * result, and results spread meanwhile. A port sends to one rank at a time, in the order of the schedule.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/builder.h"
#include "plan/schedule.h"

/* As `to`, but when `after` is done, and after all that was said to be sent in turn before. */
static void in_turn(builder *p, node *n, unsigned rank, bool pull, const node *after) {
    turns *t = p->plan->turns;
    to(p, n, rank, pull);
    if (p->failed) return;
    link *l = link_of(p, OUTGOING, rank, pull);
    t->of[t->count].link = l, t->of[t->count].segment = l->count - 1, t->of[t->count].after = after;
    l->segments[l->count - 1].turn = ++t->count;
}

/* A chunk's nodes at a rank: what it contributes to it, or has of it before its swap; what becomes of it. */
typedef struct {
    node *partial, *final;
} chunk_nodes;

/* `place`: of this rank among the others, with the straggler behind the last; `owner`: the chunk's. */
static chunk_nodes chunk_of(builder *p, const gl_submission *s, const uint8_t *in, range its, unsigned place, unsigned owner) {
    const bool owns = place == owner, swaps = owns || place == p->size - 1, reduces = owns && p->size > 2;
    chunk_nodes of = {.partial = add(p, its, in, reduces ? s->out : NULL)};
    of.final = add(p, its, !swaps ? NULL : reduces ? s->out : in, s->out);
    if (swaps) result(p, of.final, false);
    if (reduces && of.partial && of.final) of.partial->final = of.final, of.final->partial = of.partial;
    return of;
}

void stragglar(builder *p, const gl_submission *s, range r, uint64_t bytes) {
    static _Thread_local struct {
        unsigned n, rounds;
        gl_transfer transfers[GL_STRAGGLAR_MOST * (GL_STRAGGLAR_MOST - 1)];
    } known; /* it is that of the same group, nearly always */
    const unsigned n = p->size, others = n - 1;
    unsigned late = 0, ranks[GL_STRAGGLAR_MOST], place = others;
    if (n == 1) {
        add(p, r, s->in, s->out);
        return;
    }
    while (rank_of(p, late) != s->root) late++;
    for (unsigned k = 0; k < others; k++) {
        ranks[k] = rank_of(p, k + (k >= late));
        if (ranks[k] == p->c->rank) place = k;
    }
    ranks[others] = s->root;
    if (known.n != n) known.rounds = gl_stragglar_schedule(n, known.transfers), known.n = n;
    const uint8_t *in = s->in;
    turns *t = p->plan->turns = calloc(1, sizeof *t + known.rounds * sizeof *t->of);
    if (in == s->out && (n == 2 || place == others)) in = p->plan->copy = malloc(bytes);
    if (!t || !in) {
        p->failed = true;
        return;
    }
    if (in != s->in) memcpy(p->plan->copy, s->in, bytes);
    p->exact = true;
    chunk_nodes chunks[GL_STRAGGLAR_MOST] = {0};
    for (unsigned k = 1; k <= others; k++) {
        const unsigned owner = (place + k) % others;
        const range its = shard(p, r, NULL, owner, others);
        if (!its.slices) continue;
        const chunk_nodes of = chunks[owner] = chunk_of(p, s, in, its, place, owner);
        p->meeting = others > 1 ? others - 1 : 1;
        for (unsigned other = 0; place == owner && other < others; other++)
            if (other != place) from(p, of.partial, ranks[other], PUSH), prompt(p, ranks[other]);
        if (place == owner || place == others) continue;
        to(p, of.partial, ranks[owner], PUSH);
        t->unsent += its.slices;
    }
    p->meeting = 1;
    const node *received = NULL, *before = NULL; /* in the latest round in which this rank receives; before it */
    unsigned latest = 0;
    for (const gl_transfer *of = known.transfers; of < known.transfers + n * (n - 1) && !p->failed; of++) {
        const chunk_nodes its = chunks[of->chunk];
        const bool swap = of->round == of->chunk;
        if (!its.final) continue;
        if (of->from == place)
            in_turn(p, swap ? its.partial : its.final, ranks[of->to], swap ? PUSH : PULL,
                    of->round > latest ? received : before);
        if (of->to != place) continue;
        from(p, its.final, ranks[of->from], swap ? PUSH : PULL);
        if (!of->round && of->from == others) prompt(p, s->root); /* later swaps wait for the ones before */
        before = received, received = its.final, latest = of->round;
    }
}
