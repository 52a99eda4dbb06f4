/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A message that comes: its memory, and whether there is any for more of it.
 */
#include "rx/message.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

enum { GUARANTEED = 16 }; /* slices of each contribution to a node that are kept however short memory is */

slot *rx_keep(job *j, const uint8_t *payload, uint32_t length) {
    slot *s = slot_of_payload(j, payload);
    if (!s) return j->failed = true, NULL;
    if (!j->holds) {
        put16(s->header + GL_AT_LENGTH, (uint16_t)length);
        memcpy(s->bytes, payload, length);
    }
    j->kept += j->config.slice_bytes;
    return s;
}

void rx_keep_early(job *j, rx_message *m, uint32_t slice, const uint8_t *payload, uint32_t length) {
    if (!m->kept && !(m->kept = calloc(m->slices, sizeof *m->kept)))
        j->failed = true;
    else
        m->kept[slice] = rx_keep(j, payload, length);
}

void rx_detach(job *j, rx_message *m) {
    for (uint32_t i = 0; m->kept && i < m->slices; i++)
        if (m->kept[i]) rx_drop(j, m->kept[i]);
    free(m->kept);
    m->kept = NULL, m->link = NULL, m->operation = NULL;
}

void rx_message_free(job *j, rx_message *m) {
    if (!m) return;
    timer_stop(j, &m->check);
    rx_detach(j, m);
    free(m->arrived), free(m->cut), free(m);
}

bool has_room(const job *j, const rx_message *m, uint32_t slice, uint64_t ahead) {
    if (has_memory(j, ahead + 1)) return true;
    if (!m->link) return false;
    const segment *s = find_segment(m->link, slice);
    const uint32_t i = slice - s->start;
    return !s->node->awaited || s->node->awaited[i] == 1 || i < s->node->floor + GUARANTEED;
}

uint32_t expected_length(const gl_config *c, const rx_message *m, uint32_t slice) {
    if (!m->link) return 0;
    const segment *s = find_segment(m->link, slice);
    return length_of(c, s->node, slice - s->start);
}
