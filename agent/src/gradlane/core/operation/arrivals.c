/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A worker is late if the others wait for it, so its time is taken against the median of all: neither one that is early nor
 * one that is late moves that.
 */
#include "operation/arrivals.h"

#include <stdlib.h>
#include <string.h>

#include "job/losses.h"
#include "rx/rx.h"

bool arrivals_new(arrivals *a, const gl_config *c) {
    const unsigned ranks = ranks_of(c);
    a->came = calloc(2 * ranks, sizeof *a->came);
    a->late[0] = calloc((size_t)GL_LATE_STEPS * ranks, sizeof *a->late[0]);
    if (!a->came || !a->late[0]) return false;
    a->sorted = a->came + ranks;
    for (unsigned slot = 1; slot < GL_LATE_STEPS; slot++) a->late[slot] = a->late[slot - 1] + ranks;
    return true;
}

void arrivals_free(arrivals *a) { free(a->came), free(a->late[0]); }

static const uint32_t UNKNOWN = UINT32_MAX; /* of a worker that did not show in a step */

static int earlier(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The slot of a step; NULL: it is older than what is remembered. A step of 0 is none: tensors' count from 1. */
static uint32_t *late_in(arrivals *a, unsigned workers, uint32_t step) {
    const unsigned slot = step % GL_LATE_STEPS;
    if (step < a->step[slot] || !step) return NULL;
    if (step > a->step[slot]) memset(a->late[slot], 0xff, workers * sizeof *a->late[slot]);
    a->step[slot] = step;
    return a->late[slot];
}

static void note_neighbour(gl_neighbour *n, const plan *p, unsigned rank, int64_t later) {
    const unsigned slot = p->step % GL_LATE_STEPS;
    if (p->step < n->step[slot] || (p->step == n->step[slot] && p->tensor < n->tensor[slot])) return;
    n->rank = rank;
    n->step[slot] = p->step, n->tensor[slot] = p->tensor;
    n->later[slot] = (int32_t)(later > INT32_MAX ? INT32_MAX : later < -INT32_MAX ? -INT32_MAX : later);
}

void arrivals_note(arrivals *a, const gl_config *c, const plan *p, uint64_t since) {
    uint64_t *came = a->came, *sorted = a->sorted;
    unsigned count = 0, other = 0, known = 0;
    if (p->tensor >= GL_FIRST_GROUP || p->step > GL_GREATEST_STEP) return; /* these count steps of their own */
    memset(came, 0, c->workers * sizeof *came);
    for (const link *l = p->incoming; l; l = l->next)
        if (l->prompt && (l->received || l->left_at))
            came[other = l->rank] = l->received ? l->received->began : l->left_at, count++;
    if (!is_server(c)) came[c->rank] = since, count++;
    if (count == 2 && c->workers > 2 && !is_server(c) && !p->in_rows) note_neighbour(&a->neighbour, p, other, (int64_t)(came[other] - since));
    if ((count < c->workers && !p->in_rows) || count < 2) return;
    uint32_t *late = late_in(a, c->workers, p->step);
    if (!late) return;
    for (unsigned rank = 0; rank < c->workers; rank++)
        if (came[rank]) sorted[known++] = came[rank];
    qsort(sorted, known, sizeof *sorted, earlier);
    const uint64_t median = sorted[(known - 1) / 2];
    for (unsigned rank = 0; rank < c->workers; rank++) {
        const uint64_t by = came[rank] > median ? came[rank] - median : 0;
        if (came[rank] && (late[rank] == UNKNOWN || by > late[rank]))
            late[rank] = by < UNKNOWN ? (uint32_t)by : UNKNOWN - 1;
    }
}

void arrivals_of(const arrivals *a, unsigned rank, gl_lateness *lateness) {
    *lateness = (gl_lateness){0};
    for (unsigned slot = 0; slot < GL_LATE_STEPS; slot++)
        if (a->step[slot] > lateness->step) lateness->step = a->step[slot];
    for (uint32_t back = 0; back < GL_LATE_STEPS && back < lateness->step; back++) {
        const uint32_t step = lateness->step - back, slot = step % GL_LATE_STEPS;
        if (a->step[slot] == step && a->late[slot][rank] != UNKNOWN) lateness->late[lateness->steps++] = a->late[slot][rank];
    }
}

void arrivals_neighbour(const arrivals *a, gl_neighbour *n) {
    *n = (gl_neighbour){.rank = a->neighbour.rank};
    for (unsigned slot = 0; slot < GL_LATE_STEPS; slot++) {
        if (!a->neighbour.step[slot]) continue;
        n->step[n->steps] = a->neighbour.step[slot], n->tensor[n->steps] = a->neighbour.tensor[slot];
        n->later[n->steps++] = a->neighbour.later[slot];
    }
}
