/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A switch that was restarted, or to which slices have moved, has lost what some ranks have the sums of already; these have no
 * reason to send it again, and the others wait in vain. So when a step is stuck, each sends once more what it contributed to
 * those that it has, and says that it needs no answer: its own bit in `members`. A slot that lacks it takes it as any
 * contribution. One that has the sum, below the root, sends that up, from where it goes to all.
 *
 * Others lack at most sums of the last window or, where somebody may be missing in them, of two: what is older has been seen in
 * a sum that this rank has (stream.h). Each is sent twice: nobody asks for one that is lost, and of two that come to a switch
 * between, which has lost the sum, too, the first is taken there, and the second goes on up.
 */
#include "sums/remind.h"

#include "sums/closing.h"

enum { TIMES = 2 };

/* The first slice that others may lack. */
static uint32_t first_of(const stream *s) {
    const uint32_t windows = (s->members ? 2 : 1) * s->window;
    uint32_t end = s->slices;
    while (end && !test_bit(s->has, end - 1)) end--;
    return end > windows ? end - windows : 0;
}

/* The next slice from this one on that there is. */
static void find(stream *s, uint32_t slice) {
    while (s->reminding && (slice == s->slices || !test_bit(s->has, slice)))
        if (slice++ == s->slices) s->reminding--, slice = first_of(s);
    s->reminder = slice;
}

void remind(stream *s, uint32_t step) {
    if (s->kept != step) return;
    s->reminding = TIMES;
    find(s, first_of(s));
}

const uint8_t *next_reminder(const stream *s) { return s->reminding ? contribution_of(s, s->reminder) : NULL; }

const uint8_t *take_reminder(const gl_config *c, stream *s) {
    uint8_t *h = contribution_of(s, s->reminder);
    *h = GL_VERSION << 4 | GL_KIND_REPAIR;
    put32(h + GL_HEADER + GL_SUM_AT_MEMBERS, only(c, c->rank));
    find(s, s->reminder + 1);
    return h;
}
