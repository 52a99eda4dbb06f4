/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What is sent next: control datagrams, then on each lane in turn repairs, then the slice of the front-most layer of all
 * messages, when the lane's flow and the host's port let it.
 */
#include <stdlib.h>

#include "base/sender.h"
#include "job/controls.h"
#include "rate/pacing.h"
#include "tx/lanes.h"
#include "tx/message.h"
#include "tx/queue.h"
#include "tx/repair.h"
#include "tx/tagging.h"
#include "tx/trace.h"

enum {
    PATIENCE = 4, /* of the shortest round trip, and of what the sockets hold: for one part arrivals are not looked at */
    PATIENCE_MAX = 600, /* us */
};

/* A shorter datagram ends a UDP_SEGMENT batch, and a longer one can't follow. */
static bool fits(const gl_batch *b, uint32_t bytes, unsigned limit) {
    if (!b->datagrams) return true;
    size_t tail = 0;
    for (int i = 1; i <= b->pieces[b->datagrams - 1]; i++) tail += b->iov[b->iov_count - i].iov_len;
    return b->datagrams < limit && tail == b->segment && bytes <= b->segment;
}

/* Of the datagram that is being added. */
static void add_piece(gl_batch *b, const uint8_t *bytes, size_t length) {
    b->iov[b->iov_count++] = (struct iovec){(void *)bytes, length};
    b->pieces[b->datagrams]++;
}

/* Adds a slice, if it fits; what is sent is counted for its receiver. */
static bool add_slice(tx *x, gl_batch *b, const tx_message *m, unsigned kind, uint32_t slice, lane *l, unsigned limit) {
    job *j = x->job;
    const view v = view_of(x, m, slice);
    if (!fits(b, GL_HEADER + v.length, limit)) return false;
    uint8_t *h = v.header ? v.header : b->headers[b->datagrams];
    fill_header(h, m, kind, slice, &v);
    put_sender(h, lane_number(x, l) < j->ranks ? ways_take(&l->ways) : 0, j->config.rank);
    if (kind == GL_KIND_DATA && m->sent + 1 == m->slices) h[GL_AT_FLAGS] |= GL_FLAG_END;
    add_piece(b, h, v.header ? GL_HEADER + v.length : GL_HEADER);
    if (!v.header && v.length) add_piece(b, v.bytes, v.length);
    b->tos[b->datagrams++] = tos_of(&j->config, h);
    if (b->datagrams == 1) b->segment = (uint16_t)(GL_HEADER + v.length);
    l->backlog--;
    gl_counts *c = counts_of(j, lane_number(x, l), m->loss_class);
    c->bytes_sent += GL_HEADER + v.length;
    if (kind == GL_KIND_REPAIR)
        c->slices_repaired++, j->statistics.slices_repaired++;
    else
        c->slices_sent++, j->statistics.slices_sent++;
    return true;
}

/* Those of a multicast message are unicast to who misses them. */
static void send_repairs(tx *x, gl_batch *b, lane *l, unsigned limit, uint64_t now) {
    for (heap_item *first; (first = heap_first(&l->repairs));) {
        target *t = container_of(first, target, turn);
        tx_message *m = t->message;
        while (!test_bit(t->todo, t->cursor)) t->cursor = (t->cursor + 1) % m->slices;
        if (!add_slice(x, b, m, GL_KIND_REPAIR, t->cursor, l, limit)) return;
        clear_bit(t->todo, t->cursor);
        t->repaired_at[t->cursor] = (uint32_t)now | 1;
        if (m->budget) x->moved_at = now;
        t->repair_sequence[t->cursor] = l->flow.sequence++;
        if (m->lane == l) m->last_sequence = t->repair_sequence[t->cursor];
        if (--t->repairs) continue;
        heap_remove(&l->repairs, first);
        arm_probe(x, t, now);
    }
}

/* Of a message that has sent a slice: whether it is still the first one. */
static void next_turn(tx *x, tx_message *m) {
    if (m->sent == m->ready) {
        heap_remove(&m->lane->messages, &m->turn);
        return;
    }
    const uint64_t key = key_of(x, m);
    if (key != m->turn.key) queue_put(x->job, &m->lane->messages, &m->turn, key);
}

static void send_first_pass(tx *x, gl_batch *b, lane *l, unsigned limit, uint64_t now) {
    for (heap_item *first; (first = heap_first(&l->messages));) {
        tx_message *m = container_of(first, tx_message, turn);
        const uint32_t slice = m->queue ? m->queue[m->sent] : m->sent;
        if (!add_slice(x, b, m, GL_KIND_DATA, slice, l, limit)) return;
        m->sent_at[slice] = (uint32_t)now | 1;
        l->latest = m->id;
        if (m->budget) x->moved_at = now;
        m->flow_sequence[slice] = m->last_sequence = l->flow.sequence++;
        flow_earn(&l->flow, m->budget, m->slices);
        const bool traced = m->traced && m->sent == m->slices / 2;
        if (traced) trace_send(x, m, slice);
        m->sent++;
        next_turn(x, m);
        if (m->plan->turns && !--m->plan->turns->unsent) tx_turn(x, m->plan);
        /* In a ring what comes next may depend on these slices. */
        if (m->sent == m->slices || (m->link->exact && m->sent == m->ready))
            for (unsigned i = 0; i < m->targets; i++)
                if (!m->target[i].stopped) arm_probe(x, &m->target[i], now);
        if (traced) return; /* the trace is next */
    }
}

/* The longest of the first controls to a receiver, so that the others fit behind it. */
static control **longest_control(mail *m) {
    control **longest = &m->first, **at = &m->first;
    for (unsigned i = 0; *at && i < GL_BATCH; i++, at = &(*at)->next)
        if ((*at)->length > (*longest)->length) longest = at;
    return longest;
}

static void add_control(job *j, gl_batch *b, mail *m, control **at, uint32_t *used) {
    control *c = take_control(m, at);
    uint8_t *h = b->headers[b->datagrams], *payload = b->control + *used;
    memcpy(h, c->bytes, GL_HEADER);
    add_piece(b, h, GL_HEADER);
    if (c->length > GL_HEADER) {
        memcpy(payload, c->bytes + GL_HEADER, c->length - GL_HEADER);
        add_piece(b, payload, c->length - GL_HEADER);
    }
    b->tos[b->datagrams++] = tos_of(&j->config, h);
    *used += c->length - GL_HEADER;
    j->statistics.datagrams_sent++;
    free(c);
}

/* A batch of what waits for the first receiver: often a STOP and a REPORT. */
static void send_controls(job *j, gl_batch *b) {
    mail *m = j->mail_first;
    uint32_t used = 0;
    control **at = longest_control(m);
    b->to = (uint16_t)(m - j->mail), b->segment = (uint16_t)(*at)->length;
    add_control(j, b, m, at, &used);
    at = &m->first;
    for (unsigned i = 0; *at && i < GL_BATCH && b->datagrams < GL_BATCH; i++) {
        const uint32_t length = (*at)->length;
        if (length <= b->segment && used + length - GL_HEADER <= sizeof b->control) {
            add_control(j, b, m, at, &used);
            if (length < b->segment) break; /* a shorter one is the last */
        } else {
            at = &(*at)->next;
        }
    }
    mail_sent(j);
}

/* The lane to the first receiver of controls, if slices may go there just now. Where the processor is the limit a packet of
 * their own costs more than the order of the lanes is worth, so these slices go before their turn, and a control behind them. */
static lane *lane_of_mail(tx *x, uint64_t now) {
    job *j = x->job;
    lane *l = &x->lanes[j->mail_first - j->mail];
    if (!is_fast(j->uplink.rate) || x->left_over) return NULL;
    lane_first(x, now); /* looks at all that has changed */
    return l->open && !flow_full(&l->flow) && port_take(&j->tenant, now) ? l : NULL;
}

/* Behind slices to the same receiver. One that has no room there goes next. */
static void add_behind(tx *x, gl_batch *b) {
    job *j = x->job;
    mail *m = j->mail_first;
    uint32_t used = 0;
    size_t bytes = m->first->length;
    for (int k = 0; k < b->iov_count; k++) bytes += b->iov[k].iov_len;
    x->left_over = bytes > GL_BATCH_BYTES || !fits(b, m->first->length, GL_BATCH);
    if (x->left_over) return;
    add_control(j, b, m, &m->first, &used);
    mail_sent(j);
}

/* On the wire. */
static double batch_bytes(const gl_batch *b) {
    size_t bytes = (size_t)b->datagrams * FRAME_OVERHEAD;
    for (int k = 0; k < b->iov_count; k++) bytes += b->iov[k].iov_len;
    return (double)bytes;
}

int tx_transmit(tx *x, gl_batch *b, uint64_t now) {
    job *j = x->job;
    b->datagrams = 0, b->iov_count = 0;
    memset(b->pieces, 0, sizeof b->pieces);
    watch_window(x, now);
    lane *l = j->mail_first ? lane_of_mail(x, now) : lane_first(x, now);
    const bool behind = l && j->mail_first;
    const uint64_t horizon = port_horizon(j->tenant.port, now);
    for (; l && flow_asks(&l->flow, horizon); l = lane_first(x, now)) ask_receiver(x, l, horizon);
    if (j->mail_first && !behind) {
        send_controls(j, b);
        x->left_over = false;
        port_spend(j->tenant.port, batch_bytes(b), now);
        return b->datagrams;
    }
    if (!l) return port_wait(&j->tenant, false), 0;
    if (!behind && !port_take(&j->tenant, now)) return 0;
    flow_open(&l->flow, port_horizon(j->tenant.port, now)); /* it is; what nobody has answered to is lost */
    const unsigned limit = flow_burst(&l->flow, now);
    if (l->repairs.count)
        send_repairs(x, b, l, limit, now);
    else
        send_first_pass(x, b, l, limit, now);
    j->statistics.datagrams_sent += b->datagrams;
    b->to = (uint16_t)lane_number(x, l);
    if (behind) add_behind(x, b);
    const double bytes = batch_bytes(b);
    flow_sent(&l->flow, bytes, now);
    lane_sent(x, l, now);
    port_sent(&j->tenant, bytes, x->open.count, now);
    return b->datagrams;
}

uint64_t tx_deadline(const tx *x, uint64_t now) {
    if (x->job->mail_first) return now;
    return port_due(x->job->tenant.port, lanes_due(x, now), now);
}

uint64_t tx_patience(const tx *x, uint64_t now) {
    const uplink *u = &x->job->uplink;
    const heap_item *nearest = heap_first(&x->nearest);
    const double batch = 1.25 * GL_BATCH_BYTES / u->rate, held = (double)u->receive_bytes / PATIENCE / u->rate;
    if (is_fast(u->rate)) return 0;
    /* What is sent soon does not wait for arrivals, so they may wait for it; on a fast link not for long. */
    const bool soon = lanes_wait(x) && tx_deadline(x, now) <= now + 2 * BURST;
    const double most = soon ? 2 * batch : batch < PATIENCE_MAX ? batch : PATIENCE_MAX;
    double patience = nearest ? (double)nearest->key : INITIAL_RTT;
    if (!soon) patience /= PATIENCE;
    if (patience > most) patience = most;
    return (uint64_t)(u->receive_bytes && held < patience ? held : patience);
}
