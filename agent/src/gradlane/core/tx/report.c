/* SPDX-License-Identifier: Apache-2.0
 *
 * What a receiver's REPORT says of what was sent.
 */
#include "tx/message.h"
#include "tx/queue.h"
#include "tx/repair.h"

void on_report(tx *x, unsigned source, const uint8_t *h, const uint8_t *payload, uint64_t now) {
    const bool repair = get32(payload + 16), multicast = !repair && h[GL_AT_FLAGS] & GL_FLAG_MULTICAST;
    lane *l = &x->lanes[multicast ? x->job->ranks : source];
    tx_message *m = find_sent(x, get32(h + GL_AT_MESSAGE));
    target *t = m ? find_target(m, source) : NULL;
    const uint16_t slice = get16(h + GL_AT_SLICE);
    report r = {.received = get32(payload), .marked = get32(payload + 4), .share = (double)get32(payload + 8) / 8e3,
                .room = get32(payload + 12)};
    if (t && slice < m->slices && (repair ? t->repaired_at && t->repaired_at[slice] : m->sent_at[slice] && m->lane == l)) {
        const uint32_t sent_at = repair ? t->repaired_at[slice] : m->sent_at[slice];
        r.known = true;
        r.sequence = repair ? t->repair_sequence[slice] : m->flow_sequence[slice];
        r.rtt = (uint32_t)now - sent_at, r.there = get32(payload + 20) - sent_at;
    }
    if (!flow_report(&l->flow, receiver_of(x, l, source), &x->job->rtts[source], &r, now)) return;
    if (!multicast) ways_report(&l->ways, payload + 24);
    if (!r.known) return;
    if (!t->stopped && (m->link->exact ? m->sent == m->ready : m->sent == m->slices)) arm_probe(x, t, now);
}
