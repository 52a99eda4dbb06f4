/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What a receiver's REPORT says of what was sent.
 */
#include "tx/lanes.h"
#include "tx/message.h"
#include "tx/queue.h"
#include "tx/repair.h"

void on_report(tx *x, unsigned source, const uint8_t *h, const uint8_t *payload, uint64_t now) {
    const uint16_t marked = get16(payload + GL_REPORT_AT_MARKED); /* with `repair` in front */
    const bool repair = marked >> GL_MARKED_BITS, multicast = !repair && h[GL_AT_FLAGS] & GL_FLAG_MULTICAST;
    lane *l = &x->lanes[multicast ? x->job->ranks : source];
    tx_message *m = find_sent(x, get32(h + GL_AT_MESSAGE));
    target *t = m ? find_target(m, source) : NULL;
    const uint16_t slice = get16(h + GL_AT_SLICE);
    report r = {.received = get32(payload + GL_REPORT_AT_RECEIVED), .marked = marked & MARKED_MASK,
                .share = (double)get32(payload + GL_REPORT_AT_SHARE) / 8e3, .room = get32(payload + GL_REPORT_AT_ROOM)};
    if (t && slice < m->slices && (repair ? t->repaired_at && t->repaired_at[slice] : m->sent_at[slice] && m->lane == l)) {
        const uint32_t sent_at = repair ? t->repaired_at[slice] : m->sent_at[slice];
        r.known = true;
        r.sequence = repair ? t->repair_sequence[slice] : m->flow_sequence[slice];
        r.rtt = (uint32_t)now - sent_at, r.there = get32(payload + GL_REPORT_AT_CLOCK) - sent_at;
    }
    receiver *by = receiver_of(x, l, source);
    const uint32_t delivered = r.received - by->received, unmarked = delivered - newly_marked(by, &r);
    if (!flow_report(&l->flow, by, &x->job->rtts[source], &r, now)) return;
    lane_changed(x, l);
    queue_put(x->job, &x->nearest, &x->lanes[source].near, x->job->rtts[source].srtt);
    if (!multicast) ways_report(&l->ways, get64(payload + GL_REPORT_AT_MARKED), unmarked <= delivered ? unmarked : 0);
    if (!r.known) return;
    if (!t->stopped && (m->link->exact ? m->sent == m->ready : m->sent == m->slices)) arm_probe(x, t, now);
}
