/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The schedule of StragglAR, for any number of members.
 *
 * A chunk is final at one member besides the straggler after its swap, and must be at 1, 2, 4 ... n / 2 of them in the rounds
 * that follow, if all are to have it log2 n rounds after it. Where n is a power of two that takes every port in every round, and
 * each member holds one chunk that others lack. Elsewhere some hold two. A member that is about to swap takes nothing else in
 * that round, so by then it should hold the chunk that is complete next, and have got no younger one. Which members get which
 * chunk is a matching in each round; what the rules leave open decides a hash. Its seeds were found by trying.
 */
#include "plan/schedule.h"

#include <stdbool.h>

typedef uint64_t set;

typedef struct {
    unsigned n, doublings, round, seed;
    set held[GL_STRAGGLAR_MOST];     /* by member: final chunks */
    set holders[GL_STRAGGLAR_MOST];  /* by chunk: members, but for the straggler */
    set live;                        /* chunks that are final, and some member lacks */
    set senders, receivers;          /* in this round: who can send; who gets nothing yet */
    set sending;                     /* senders that do */
    uint8_t to[GL_STRAGGLAR_MOST], chunk[GL_STRAGGLAR_MOST]; /* by sender */
} search;

static set one(unsigned i) { return 1ull << i; }
static unsigned first(set s) { return (unsigned)__builtin_ctzll(s); }
static int count(set s) { return __builtin_popcountll(s); }

static uint32_t hash(const search *x, unsigned member) {
    return ((x->round * GL_STRAGGLAR_MOST + member) * 0x9e3779b1u ^ x->seed * 0x85ebca6bu) * 0xc2b2ae35u >> 24;
}

/* How little a member is suited to get a chunk now, from what counts most to what counts least. */
static uint32_t unsuited(const search *x, unsigned member, unsigned chunk) {
    const unsigned t = x->round, d = x->doublings;
    const uint32_t tasks = (uint32_t)count(x->held[member] & x->live);
    const uint32_t older = (uint32_t)count(x->live & (one(chunk) - 1) & ~x->held[member]);
    if (t < d && x->n > 4) { /* in the beginning there are members enough: those that swap next are left to one chunk each */
        const bool reserved = member > t && member <= 2 * (d - 1), due = reserved && member == chunk + d;
        return (uint32_t)(reserved && !due) << 29 | (uint32_t)!due << 28 | tasks << 20 | older << 12 | hash(x, member);
    }
    const bool soon = member > t && member < t + d, young = soon && chunk + d > member;
    return (uint32_t)young << 29 | (x->seed & 1 ? 31 - tasks : tasks) << 20 | (uint32_t)!soon << 19 | older << 12 |
           hash(x, member);
}

/* Finds a sender; those that are `tried` are not. Others may have to send something else instead (an augmenting path). */
static bool place(search *x, unsigned receiver, unsigned chunk, set *tried) {
    const set could = x->senders & (x->holders[chunk] | one(x->n - 1));
    for (int taken = 0; taken < 2; taken++)
        for (set left; (left = could & ~*tried & (taken ? x->sending : ~x->sending));) {
            unsigned best = first(left);
            for (; left; left &= left - 1)
                if (count(x->held[first(left)] & x->live) < count(x->held[best] & x->live)) best = first(left);
            *tried |= one(best);
            if (taken && !place(x, x->to[best], x->chunk[best], tried)) continue;
            x->to[best] = (uint8_t)receiver, x->chunk[best] = (uint8_t)chunk;
            x->sending |= one(best);
            return true;
        }
    return false;
}

/* To so many members more. */
static void spread(search *x, unsigned chunk, int members) {
    for (; members > 0; members--) {
        const set lacking = x->receivers & ~x->holders[chunk];
        if (!lacking) return;
        unsigned best = first(lacking);
        uint32_t least = UINT32_MAX;
        for (set left = lacking; left; left &= left - 1) {
            const uint32_t is = unsuited(x, first(left), chunk);
            if (is < least) least = is, best = first(left);
        }
        set tried = 0;
        if (!place(x, best, chunk, &tried)) return;
        x->receivers &= ~one(best);
    }
}

static int halved(unsigned n, unsigned times) { return (int)((n + (1u << times) - 1) >> times); }

/* How many should hold it after this round. From the last chunk's swap on, the straggler sends, too. */
static int wanted(const search *x, unsigned chunk) {
    const unsigned age = x->round - chunk, last = x->n - 2;
    if (age >= x->doublings) return (int)x->n - 1;
    return chunk == last ? halved(x->n, x->doublings - 1 - age) - 1 : halved(x->n, x->doublings - age);
}

static void matching(search *x) {
    for (set left = x->live; left; left &= left - 1)
        spread(x, first(left), wanted(x, first(left)) - count(x->holders[first(left)]));
    for (set left = x->live; left;) { /* ports that are still free, the youngest chunk first */
        const unsigned youngest = 63 - (unsigned)__builtin_clzll(left);
        spread(x, youngest, (int)x->n);
        left &= ~one(youngest);
    }
}

static void take(search *x, unsigned member, unsigned chunk) {
    x->held[member] |= one(chunk);
    if (member != x->n - 1) x->holders[chunk] |= one(member);
}

static set incomplete(const search *x) {
    set live = 0;
    for (unsigned c = 0; c < x->round && c + 1 < x->n; c++)
        if (x->holders[c] != one(x->n - 1) - 1) live |= one(c);
    return live;
}

unsigned gl_stragglar_schedule(unsigned n, gl_transfer *out) {
    static const uint16_t seeds[GL_STRAGGLAR_MOST + 1] = { /* by n */
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1,
        0, 0, 0, 0, 0, 2, 0, 0, 2, 7, 1, 1, 7, 69, 13, 75,
        0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 4, 0, 14, 0, 4, 0,
        16, 325, 283, 23, 54, 5, 1285, 3, 49, 5, 123, 5, 7, 387, 7, 41,
        0,
    };
    if (n < 2 || n > GL_STRAGGLAR_MOST) return 0;
    const unsigned straggler = n - 1;
    search x = {.n = n, .doublings = 32 - (unsigned)__builtin_clz(n - 1), .seed = seeds[n]};
    for (; x.round < straggler || incomplete(&x); x.round++) {
        const uint8_t t = (uint8_t)x.round;
        x.live = incomplete(&x), x.sending = 0;
        x.receivers = x.senders = one(straggler) - 1;
        if (t < straggler) {
            x.receivers &= ~one(t), x.senders &= ~one(t);
            *out++ = (gl_transfer){t, t, (uint8_t)straggler, t};
            *out++ = (gl_transfer){t, (uint8_t)straggler, t, t};
        } else {
            x.senders |= one(straggler);
        }
        matching(&x);
        for (set left = x.sending; left; left &= left - 1) {
            const unsigned i = first(left);
            *out++ = (gl_transfer){t, (uint8_t)i, x.to[i], x.chunk[i]};
            take(&x, x.to[i], x.chunk[i]);
        }
        if (t < straggler) take(&x, t, t), take(&x, straggler, t);
    }
    return x.round;
}
