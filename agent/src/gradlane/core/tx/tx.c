/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The sender's beginning and end.
 */
#include "tx/tx.h"

#include <stdlib.h>

static unsigned common_divisor(unsigned a, unsigned b) { return b ? common_divisor(b, a % b) : a; }

/* How many places the next lane is behind the one before: about the golden ratio of a round, so that any of them that follow
 * one another, as hosts at a switch do, are spread over it; and so that each place is one lane's. */
static unsigned stride_of(unsigned lanes) {
    unsigned stride = (unsigned)(0.618 * lanes + 0.5);
    for (int step = -1; common_divisor(stride, lanes) != 1; step = step < 0 ? 1 - step : -1 - step) stride += (unsigned)step;
    return stride;
}

bool tx_new(tx *x, job *j) {
    x->job = j, x->window.of = OF_WINDOW;
    x->lanes = calloc(j->ranks + 1, sizeof *x->lanes);
    x->paths = calloc(j->ranks, sizeof *x->paths);
    if (!x->lanes || !x->paths) return false;
    for (unsigned rank = 0; rank < j->ranks; rank++)
        if (!flow_new(&x->lanes[rank].flow, &j->uplink, 1) ||
            (rank != j->config.rank && !heap_put(&x->nearest, &x->lanes[rank].near, j->rtts[rank].srtt)))
            return false;
    const unsigned stride = stride_of(j->ranks + 1);
    for (unsigned i = 0; i <= j->ranks; i++) x->lanes[i].place = i * stride % (j->ranks + 1);
    flow *multicast = &x->lanes[j->ranks].flow;
    if (!flow_new(multicast, &j->uplink, j->ranks)) return false;
    for (unsigned rank = 0; rank < j->config.workers; rank++) multicast->receivers[rank].awaited = rank != j->config.rank;
    return true;
}

void tx_free(tx *x) {
    for (unsigned i = 0; x->lanes && i <= x->job->ranks; i++) {
        lane *l = &x->lanes[i];
        flow_free(&l->flow), free(l->messages.items), free(l->repairs.items);
    }
    for (unsigned rank = 0; x->paths && rank < x->job->ranks; rank++) free(x->paths[rank]);
    free(x->lanes), free(x->paths);
    free(x->waiting[0].items), free(x->waiting[1].items);
    free(x->due.items), free(x->open.items), free(x->nearest.items);
}
