/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How a collective's nodes and links are written down.
 */
#ifndef GRADLANE_BUILDER_H
#define GRADLANE_BUILDER_H

#include "plan/plan.h"

enum { PUSH = false, PULL = true, OUTGOING = false, INCOMING = true };

typedef struct {
    const gl_config *c;
    plan *plan; /* what is made */
    const uint16_t *group; /* NULL: all workers */
    unsigned size, me;     /* members of the group; which of them this rank is */
    uint16_t *places;      /* members by rack, in each by rank; NULL: as they are in the group */
    unsigned place;        /* this rank's among them */
    unsigned reduction;
    unsigned meeting;      /* streams that meet at the busiest port on the path */
    bool exact;            /* a message holds sums of many: nothing of it may be lost */
    bool failed;           /* memory is out, or a message is too long */
    enum { ALL, OWNED, OTHERS } parts; /* of an all-reduce, that are written down */
} builder;

/* Consecutive slices of a block of elements. `before`: slices of the blocks before it, as layers and magnitudes count. */
typedef struct {
    uint32_t first, slices, last_length, before;
} range;

unsigned rank_of(const builder *p, unsigned member);
/* By rack: what goes from one place to the next leaves each rack once. */
unsigned member_at(const builder *p, unsigned place);
unsigned rank_at(const builder *p, unsigned place);
/* Finds the places. */
void by_rack(builder *p);
/* The part of a range that falls to one of several. */
range shard(const builder *p, range r, const uint32_t *shares, unsigned index, unsigned parts);
/* A node of a range that is not empty. `own` and `out` are where the range's block begins. NULL: memory is out. */
node *add(builder *p, range r, const uint8_t *own, uint8_t *out);
/* What it reduces is the operation's result: all of the group's contributions, or those that arrived. */
void result(const builder *p, node *n, bool counted);
/* To, or from, a rank; it is made if there is none. NULL: memory is out. */
link *link_of(builder *p, bool incoming, unsigned rank, bool pull);
/* What a node receives and sends, if there is one; in the order of these calls at both ends. */
void from(builder *p, node *n, unsigned rank, bool pull);
void to(builder *p, node *n, unsigned rank, bool pull);
/* What a rank pushes begins with what depends on nothing but its submission, so it tells when that was. */
void prompt(builder *p, unsigned rank);

/* An all-reduce in two levels. */
void grid(builder *p, const gl_submission *s, range r);
/* One of `bytes` by StragglAR. */
void stragglar(builder *p, const gl_submission *s, range r, uint64_t bytes);

#endif
