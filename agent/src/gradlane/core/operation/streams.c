/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Which streams are going to come.
 */
#include "operation/streams.h"

#include "base/bits.h"

void expect_streams(operations *all, const rx_message *first, uint64_t now) {
    const operation *o = first->operation;
    const bool multicast = first->flags & GL_FLAG_MULTICAST, pull = first->flags & GL_FLAG_PULL;
    tenant *t = &all->job->tenant;
    for (const rx_message *m = o->early; m; m = m->next_early)
        if (m != first && !(m->flags & GL_FLAG_PULL) == !pull) return;
    for (const link *l = o->plan.incoming; l; l = l->next)
        if (l->pull == pull && l->received && l->received != first) return;
    for (unsigned rank = 0; !o->planned && rank < all->job->config.workers; rank++) share_expect(t, rank, multicast, now);
    for (const link *l = o->plan.incoming; l; l = l->next)
        if (l->pull == pull && l->meeting > 1) share_expect(t, l->rank, multicast, now);
    share_grow(t, now);
}

void plan_streams(operations *all, const operation *o) {
    uint64_t planned[GL_MAX_RANKS / 64] = {0};
    for (const link *l = o->plan.incoming; l; l = l->next) set_bit(planned, l->rank);
    for (unsigned rank = 0; rank < all->job->config.workers; rank++)
        if (!test_bit(planned, rank)) share_end(&all->job->tenant, rank);
}
