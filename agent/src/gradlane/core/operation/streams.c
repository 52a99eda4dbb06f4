/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Which streams are going to come.
 */
#include "operation/streams.h"

#include <stdlib.h>

#include "base/bits.h"

bool streams_of_group(operations *all, uint16_t tensor, const uint16_t *ranks, unsigned count) {
    const unsigned workers = all->job->config.workers;
    for (unsigned i = 0; i < count; i++)
        if (ranks[i] >= workers) return false;
    if (tensor < GL_FIRST_GROUP) return false;
    if (!all->members && !(all->members = calloc(GROUPS, sizeof *all->members))) return false;
    uint64_t **members = &all->members[tensor - GL_FIRST_GROUP];
    if (!*members && !(*members = calloc(words(workers), sizeof **members))) return false;
    for (unsigned i = 0; i < count; i++) set_bit(*members, ranks[i]);
    return true;
}

void streams_free(operations *all) {
    for (unsigned i = 0; all->members && i < GROUPS; i++) free(all->members[i]);
    free(all->members);
}

/* Whether a worker may send something of an operation, as far as is known without its plan: of a group that is not known here
 * nobody is expected before he comes. */
static bool may_send(const operations *all, const operation *o, unsigned rank) {
    if (o->plan.tensor < GL_FIRST_GROUP) return true;
    const uint64_t *members = all->members ? all->members[o->plan.tensor - GL_FIRST_GROUP] : NULL;
    return members && test_bit(members, rank);
}

void expect_streams(operations *all, const rx_message *first, uint64_t now) {
    const operation *o = first->operation;
    const bool multicast = first->flags & GL_FLAG_MULTICAST, pull = first->flags & GL_FLAG_PULL;
    tenant *t = &all->job->tenant;
    for (const rx_message *m = o->early; m; m = m->next_early)
        if (m != first && !(m->flags & GL_FLAG_PULL) == !pull) return;
    for (const link *l = o->plan.incoming; l; l = l->next)
        if (l->pull == pull && l->received && l->received != first) return;
    for (unsigned rank = 0; !o->planned && rank < all->job->config.workers; rank++)
        if (may_send(all, o, rank)) share_expect(t, rank, multicast, now);
    for (const link *l = o->plan.incoming; l; l = l->next)
        if (l->pull == pull && l->meeting > 1) share_expect(t, l->rank, multicast, now);
    share_grow(t, now);
}

void plan_streams(operations *all, const operation *o) {
    uint64_t planned[GL_MAX_RANKS / 64] = {0};
    for (const link *l = o->plan.incoming; l; l = l->next) set_bit(planned, l->rank);
    for (unsigned rank = 0; rank < all->job->config.workers; rank++)
        if (!test_bit(planned, rank) && may_send(all, o, rank)) share_end(&all->job->tenant, rank);
}
