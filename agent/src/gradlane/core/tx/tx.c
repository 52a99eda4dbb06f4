/* SPDX-License-Identifier: Apache-2.0
 *
 * The sender's beginning and end.
 */
#include "tx/tx.h"

#include <stdlib.h>

bool tx_new(tx *x, job *j) {
    x->job = j, x->window.of = OF_WINDOW;
    for (unsigned rank = 0; rank < j->ranks; rank++)
        if (!flow_new(&x->lanes[rank].flow, &j->uplink, 1) ||
            (rank != j->config.rank && !heap_put(&x->nearest, &x->lanes[rank].near, j->rtts[rank].srtt)))
            return false;
    flow *multicast = &x->lanes[j->ranks].flow;
    if (!flow_new(multicast, &j->uplink, j->ranks)) return false;
    for (unsigned rank = 0; rank < j->config.workers; rank++) multicast->receivers[rank].awaited = rank != j->config.rank;
    return true;
}

void tx_free(tx *x) {
    for (lane *l = x->lanes; l <= x->lanes + GL_MAX_RANKS; l++)
        flow_free(&l->flow), free(l->messages.items), free(l->repairs.items);
    for (unsigned rank = 0; rank < GL_MAX_RANKS; rank++) free(x->paths[rank]);
    free(x->waiting[0].items), free(x->waiting[1].items);
    free(x->due.items), free(x->open.items), free(x->nearest.items);
}
