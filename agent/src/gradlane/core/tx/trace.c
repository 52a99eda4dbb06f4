/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Traces: now and then a datagram goes where a message's slices go, every switch adds what it knows (the port, the queue
 * that the datagram has waited in), and the receiver returns the records. They inform; no decision rests on them.
 */
#include "tx/trace.h"

#include <stdlib.h>

#include "base/sender.h"
#include "job/controls.h"
#include "tx/message.h"

void trace_send(tx *x, const tx_message *m, uint32_t slice) {
    uint8_t h[GL_HEADER];
    put_header(x, h, m, GL_KIND_TRACE, slice);
    if (lane_number(x, m->lane) < x->job->ranks) put_sender(h, ways_last(&m->lane->ways), x->job->config.rank);
    send_control(x->job, lane_number(x, m->lane), GL_KIND_TRACE, h, NULL, 0);
    x->job->statistics.traces_sent++;
}

static gl_hop hop_of(const uint8_t *record) {
    const uint8_t tags = record[GL_HOP_AT_EGRESS_PORT + 2]; /* two fields of four bits */
    return (gl_hop){
        .switch_id = get16(record + GL_HOP_AT_SWITCH_ID),
        .ingress_port = get16(record + GL_HOP_AT_INGRESS_PORT),
        .egress_port = get16(record + GL_HOP_AT_EGRESS_PORT),
        .queue_class = tags >> 4,
        .color = tags & 15,
        .depth_unit = record[GL_HOP_AT_DEPTH_UNIT],
        .depth = get32(record + GL_HOP_AT_DEPTH),
        .wait = get32(record + GL_HOP_AT_WAIT),
    };
}

/* The records in the order of the path; they come newest first. Returns false if there is what no switch writes. */
static bool read_hops(gl_path *path, const uint8_t *records, uint32_t length) {
    if (length % GL_HOP || length > GL_MAX_HOPS * GL_HOP) return false;
    *path = (gl_path){.hops = (uint8_t)(length / GL_HOP)};
    for (unsigned i = 0; i < path->hops; i++) {
        const gl_hop hop = hop_of(records + (path->hops - 1 - i) * GL_HOP);
        if (hop.queue_class > 7 || hop.color > 3) return false;
        path->hop[i] = hop;
    }
    return true;
}

static bool same_path(const gl_path *a, const gl_path *b) {
    if (a->hops != b->hops) return false;
    for (unsigned i = 0; i < a->hops; i++)
        if (a->hop[i].switch_id != b->hop[i].switch_id || a->hop[i].ingress_port != b->hop[i].ingress_port ||
            a->hop[i].egress_port != b->hop[i].egress_port)
            return false;
    return true;
}

/* The latest path comes first; a further one takes the place of what was seen longest ago. */
static void remember(gl_path *paths, gl_path *latest) {
    unsigned at = 0;
    while (at < GL_PATHS - 1 && paths[at].count && !same_path(&paths[at], latest)) at++;
    latest->count = paths[at].count && same_path(&paths[at], latest) ? paths[at].count + 1 : 1;
    memmove(paths + 1, paths, at * sizeof *paths);
    paths[0] = *latest;
}

void on_trace(tx *x, unsigned source, const uint8_t *h, uint32_t length) {
    gl_path path;
    gl_path **from = &x->paths[source];
    if (!read_hops(&path, h + GL_HEADER, length)) {
        x->job->statistics.bad_trace++;
    } else if (!(h[GL_AT_FLAGS] & GL_FLAG_RETURNED)) {
        uint8_t back[GL_HEADER];
        memcpy(back, h, GL_HEADER);
        back[GL_AT_FLAGS] |= GL_FLAG_RETURNED;
        send_control(x->job, source, GL_KIND_TRACE, back, h + GL_HEADER, (uint16_t)length);
    } else {
        x->job->statistics.traces_returned++;
        if (!*from && !(*from = calloc(GL_PATHS, sizeof **from))) return;
        remember(*from, &path);
    }
}

unsigned trace_paths(const tx *x, unsigned rank, gl_path *paths) {
    unsigned count = 0;
    if (!x->paths[rank]) return 0;
    while (count < GL_PATHS && x->paths[rank][count].count) count++;
    memcpy(paths, x->paths[rank], count * sizeof *paths);
    return count;
}
