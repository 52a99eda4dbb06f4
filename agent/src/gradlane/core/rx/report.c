/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * REPORTs: how a sender's stream gets through, and which part of this host's port is its.
 */
#include <string.h>

#include "base/bits.h"
#include "base/sender.h"
#include "job/controls.h"
#include "rate/flow.h"
#include "rate/pacing.h"
#include "rate/ways.h"
#include "rx/rx.h"

void report_arrivals(rx *x, unsigned source, const uint8_t *h, uint32_t bytes, uint32_t segment, bool congested, uint64_t now) {
    job *j = x->job;
    tenant *t = &j->tenant;
    const bool repair = (h[0] & 15) == GL_KIND_REPAIR;
    const bool multicast = !repair && h[GL_AT_FLAGS] & GL_FLAG_MULTICAST; /* repairs are unicast */
    incoming *in = &x->sources[source].incoming[multicast];
    const uint32_t count = (bytes + segment - 1) / segment;
    bool end = false;
    for (uint32_t i = 0; i < count; i++, h += segment) {
        const unsigned way = get_way(h);
        if (!congested && way && way <= GL_WAYS) in->passed[way - 1]++;
        end |= h[GL_AT_FLAGS] & GL_FLAG_END;
    }
    h -= segment;
    const allotment its = share_count(t, source, multicast, end, bytes + count * FRAME_OVERHEAD, now);
    const uint32_t marked = congested ? count : 0;
    in->received += count, in->marked += marked;
    j->statistics.ecn_marked += marked;
    gl_counts *c = counts_of(j, source, class_of(&j->config, get16(h + GL_AT_LAYER)));
    c->ecn_marked += marked, c->bytes_received += bytes;
    if (!in->unreported) in->since = now;
    in->unreported += count;
    const bool many = in->unreported >= REPORT_EVERY && now - in->reported_at >= REPORT_LEAST;
    sharer *told = sharer_of(t, source, multicast);
    if (!many && !end && told->told == its.news &&
        now - in->since < REPORT_MOST && (uint64_t)in->unreported * segment < its.room / 4) return;
    in->unreported = 0, in->reported_at = now;
    told->told = its.news;
    uint8_t payload[GL_REPORT];
    put32(payload + GL_REPORT_AT_RECEIVED, in->received);
    put32(payload + GL_REPORT_AT_SHARE, (uint32_t)(its.share * 8e3));
    put32(payload + GL_REPORT_AT_ROOM, its.room), put32(payload + GL_REPORT_AT_CLOCK, (uint32_t)now);
    put64(payload + GL_REPORT_AT_MARKED, ways_passed(in->passed));
    put16(payload + GL_REPORT_AT_MARKED, (uint16_t)(repair << GL_MARKED_BITS | (in->marked & MARKED_MASK)));
    memset(in->passed, 0, sizeof in->passed);
    send_control(j, source, GL_KIND_REPORT, h, payload, sizeof payload);
    j->statistics.reports_sent++;
}
