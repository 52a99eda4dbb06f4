/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What a receiver answers: STOP and BITMAP.
 */
#include "rx/answer.h"

#include <string.h>

#include "base/bits.h"
#include "job/controls.h"
#include "rx/message.h"

/* `spare`: how many of the slices whose bit is clear may stay missing. */
static void tell(rx *x, const rx_message *m, unsigned kind, const uint64_t *bits, uint32_t spare) {
    uint8_t h[GL_HEADER] = {0}, payload[GL_MAX_SLICES / 8];
    put16(h + GL_AT_JOB, x->job->config.job);
    put32(h + GL_AT_STEP, m->step);
    put16(h + GL_AT_TENSOR, m->tensor);
    h[GL_AT_FLAGS] = m->flags & (GL_FLAG_PULL | GL_FLAG_MULTICAST);
    put16(h + GL_AT_LAYER, m->layer);
    if (kind == GL_KIND_BITMAP && all_seen(m)) h[GL_AT_FLAGS] |= GL_FLAG_END;
    h[GL_AT_ELEMENT_TYPE] = m->encoding;
    put32(h + GL_AT_MESSAGE, m->id);
    put16(h + GL_AT_SLICES, (uint16_t)m->slices);
    put16(h + GL_AT_BUDGET, (uint16_t)spare);
    put64(h + GL_AT_TOKEN, x->job->config.token);
    const uint32_t bytes = (m->slices + 7) / 8;
    for (uint32_t i = 0; i < bytes; i++) payload[i] = (uint8_t)(bits[i >> 3] >> (8 * (i & 7)));
    send_control(x->job, m->source, kind, h, payload, (uint16_t)bytes);
    if (kind == GL_KIND_STOP)
        x->job->statistics.stops_sent++;
    else
        x->job->statistics.bitmaps_sent++;
}

void answer(rx *x, const rx_message *m, unsigned kind, const uint64_t *bits) { tell(x, m, kind, bits, m->budget); }

bool ask(rx *x, const rx_message *m) {
    if (has_memory(x->job, m->slices - m->received)) return answer(x, m, GL_KIND_BITMAP, m->arrived), true;
    uint64_t bits[GL_MAX_SLICES / 64];
    memcpy(bits, m->arrived, words(m->slices) * sizeof *bits);
    uint32_t wanted = 0, unasked = 0;
    for (uint32_t i = 0; i < m->slices; i++) {
        if (test_bit(bits, i)) continue;
        if (has_room(x->job, m, i, wanted))
            wanted++;
        else
            set_bit(bits, i), unasked++;
    }
    /* What is not asked for uses up the budget: the sender is not to spend it once more. */
    if (wanted) tell(x, m, GL_KIND_BITMAP, bits, unasked < m->budget ? m->budget - unasked : 0);
    return wanted;
}
