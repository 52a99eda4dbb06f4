/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces: now and then a datagram goes the way of a message's slices, every switch adds what it knows (the port, the queue
 * that the datagram has waited in), and the receiver returns the records. They inform; no decision rests on them.
 */
#include "tx/trace.h"

#include <stdlib.h>

#include "job/controls.h"
#include "tx/message.h"

void trace_send(tx *x, const tx_message *m, uint32_t slice) {
    uint8_t h[GL_HEADER];
    put_header(x, h, m, GL_KIND_TRACE, slice);
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

/* The records in the order of the way; they come newest first. Returns false if there is what no switch writes. */
static bool read_hops(gl_route *route, const uint8_t *records, uint32_t length) {
    if (length % GL_HOP || length > GL_MAX_HOPS * GL_HOP) return false;
    *route = (gl_route){.hops = (uint8_t)(length / GL_HOP)};
    for (unsigned i = 0; i < route->hops; i++) {
        const gl_hop hop = hop_of(records + (route->hops - 1 - i) * GL_HOP);
        if (hop.queue_class > 7 || hop.color > 3) return false;
        route->hop[i] = hop;
    }
    return true;
}

static bool same_way(const gl_route *a, const gl_route *b) {
    if (a->hops != b->hops) return false;
    for (unsigned i = 0; i < a->hops; i++)
        if (a->hop[i].switch_id != b->hop[i].switch_id || a->hop[i].ingress_port != b->hop[i].ingress_port ||
            a->hop[i].egress_port != b->hop[i].egress_port)
            return false;
    return true;
}

/* The latest route comes first; a further one takes the place of what was seen longest ago. */
static void remember(gl_route *routes, gl_route *latest) {
    unsigned at = 0;
    while (at < GL_ROUTES - 1 && routes[at].count && !same_way(&routes[at], latest)) at++;
    latest->count = routes[at].count && same_way(&routes[at], latest) ? routes[at].count + 1 : 1;
    memmove(routes + 1, routes, at * sizeof *routes);
    routes[0] = *latest;
}

void on_trace(tx *x, unsigned source, const uint8_t *h, uint32_t length) {
    gl_route route;
    gl_route **from = &x->routes[source];
    if (!read_hops(&route, h + GL_HEADER, length)) {
        x->job->statistics.bad_trace++;
    } else if (!(h[GL_AT_FLAGS] & GL_FLAG_RETURNED)) {
        uint8_t back[GL_HEADER];
        memcpy(back, h, GL_HEADER);
        back[GL_AT_FLAGS] |= GL_FLAG_RETURNED;
        send_control(x->job, source, GL_KIND_TRACE, back, h + GL_HEADER, (uint16_t)length);
    } else {
        x->job->statistics.traces_returned++;
        if (!*from && !(*from = calloc(GL_ROUTES, sizeof **from))) return;
        remember(*from, &route);
    }
}

unsigned trace_routes(const tx *x, unsigned rank, gl_route *routes) {
    unsigned count = 0;
    if (!x->routes[rank]) return 0;
    while (count < GL_ROUTES && x->routes[rank][count].count) count++;
    memcpy(routes, x->routes[rank], count * sizeof *routes);
    return count;
}
