/* SPDX-License-Identifier: Apache-2.0
 *
 * The sender: messages get their numbers, and what goes next on the paths, whose rates are in congestion.c: repairs, then
 * the slice of the front-most layer of all messages.
 */
#include "engine/internal.h"

enum { LAYER_SHIFT = 48 }; /* of a key: layer, then age */

/* What is sent of a slice, and with which facts. */
typedef struct {
    const uint8_t *bytes;
    uint8_t *header; /* in front of `bytes`; NULL: there is no room for it */
    uint16_t length, layer;
    uint8_t magnitude;
} view;

static view view_of(const gl_engine *e, const tx_message *m, uint32_t slice) {
    const operation *o = m->operation;
    const segment *s = find_segment(m->link, slice);
    const node *n = s->node;
    const uint32_t i = slice - s->start, length = i == n->slices - 1 ? n->last_length : e->config.slice_bytes;
    view v = {.length = (uint16_t)length, .layer = o->layers[n->first + i], .magnitude = 255};
    if (!n->from_count) {
        v.bytes = n->own + (uint64_t)i * e->config.slice_bytes;
        if (!m->link->pull && o->magnitudes) v.magnitude = o->magnitudes[n->first + i];
    } else if (test_bit(n->empty, i))
        v.length = 0;
    else if (n->results[i])
        v.bytes = n->results[i]->bytes, v.header = n->results[i]->header;
    return v;
}

unsigned magnitude_of(const gl_engine *e, const tx_message *m, uint32_t slice) { return view_of(e, m, slice).magnitude; }

static path *path_of(gl_engine *e, const link *l) { return &e->paths[l->rank]; }

tx_message *tx_new(gl_engine *e, operation *o, link *l) {
    const bool multicast = l->rank == e->ranks;
    const unsigned targets = multicast ? e->config.workers - !is_server(e) : 1;
    tx_message *m = calloc(1, sizeof *m + targets * sizeof *m->target);
    if (!m) return NULL;
    m->path = path_of(e, l), m->link = l, m->operation = o, m->slices = l->slices, m->loss_class = o->loss_class;
    m->budget = l->exact ? 0 : budget_of(l->pull ? o->pull_loss : o->push_loss, l->slices);
    bool waits = false;
    for (unsigned k = 0; k < l->count; k++)
        *(l->segments[k].node->from_count ? &waits : &m->reads_own) = true;
    m->sent_at = calloc(m->slices, sizeof *m->sent_at);
    m->path_sequence = calloc(m->slices, sizeof *m->path_sequence);
    m->queue = waits ? calloc(m->slices, sizeof *m->queue) : NULL;
    if (!m->sent_at || !m->path_sequence || (waits && !m->queue)) return tx_free(e, m), NULL;
    for (unsigned rank = 0; m->targets < targets; rank++) {
        if (multicast && rank == e->config.rank) continue;
        m->target[m->targets].message = m;
        m->target[m->targets++].rank = multicast ? (uint16_t)rank : l->rank;
    }
    uint8_t *h = m->header;
    h[0] = GL_VERSION << 4;
    put16(h + GL_AT_JOB, e->config.job), put16(h + GL_AT_SOURCE, e->config.rank);
    put32(h + GL_AT_STEP, o->step), put16(h + GL_AT_TENSOR, o->tensor);
    h[GL_AT_FLAGS] = (l->pull ? GL_FLAG_PULL : 0) | (multicast ? GL_FLAG_MULTICAST : 0);
    h[GL_AT_ELEMENT_TYPE] = o->encoding;
    put16(h + GL_AT_SLICES, (uint16_t)m->slices), put16(h + GL_AT_BUDGET, (uint16_t)m->budget);
    put64(h + GL_AT_TOKEN, e->config.token);
    return m;
}

static tx_message **slot_of(gl_engine *e, uint32_t id) {
    return &e->sent[(id - e->config.message_base - e->config.rank) / e->stride % RING];
}

static void leave_queues(gl_engine *e, tx_message *m) {
    if (!m->started) return;
    heap_remove(m->active ? &m->path->messages : &e->waiting[m->budget > 0], &m->turn);
    for (unsigned i = 0; i < m->targets; i++) {
        target *t = &m->target[i];
        timer_stop(e, &t->probe);
        heap_remove(&e->paths[t->rank].repairs, &t->turn);
        e->paths[t->rank].backlog -= t->repairs;
    }
    if (m->active) {
        m->path->backlog -= m->ready - m->sent;
        *slot_of(e, m->id) = NULL;
    }
    e->unstopped--;
}

void tx_free(gl_engine *e, tx_message *m) {
    if (!m) return;
    leave_queues(e, m);
    for (unsigned i = 0; i < m->targets; i++)
        free(m->target[i].todo), free(m->target[i].repaired_at), free(m->target[i].repair_sequence);
    free(m->queue), free(m->sent_at), free(m->path_sequence), free(m);
}

static uint64_t key_of(const gl_engine *e, const tx_message *m) {
    const uint32_t next = m->queue ? m->queue[m->sent] : m->sent;
    return (uint64_t)view_of(e, m, next).layer << LAYER_SHIFT | m->order;
}

/* Whether there is a number: of two messages with a budget, so that they have different slots in the switch, within the
 * window; of others, which use no slots, within what both ends remember. */
static bool has_number(gl_engine *e, bool tolerant) {
    const tx_message *const *sent = (const tx_message *const *)e->sent;
    for (; e->oldest_sequence != e->next_sequence && !sent[e->oldest_sequence % RING]; e->oldest_sequence++)
        if (e->oldest_tolerant == e->oldest_sequence) e->oldest_tolerant++;
    while (e->oldest_tolerant != e->next_sequence &&
           (!sent[e->oldest_tolerant % RING] || !sent[e->oldest_tolerant % RING]->budget))
        e->oldest_tolerant++;
    if (e->next_sequence - e->oldest_sequence >= RING / 2) return false;
    return !tolerant || e->next_sequence - e->oldest_tolerant < e->config.window;
}

static void activate(gl_engine *e) {
    for (unsigned tolerant = 0; tolerant < 2; tolerant++) {
        for (heap_item *first; (first = heap_first(&e->waiting[tolerant])) && has_number(e, tolerant);) {
            tx_message *m = container_of(first, tx_message, turn);
            heap_remove(&e->waiting[tolerant], first);
            m->id = e->config.message_base + e->next_sequence * e->stride + e->config.rank;
            m->active = true;
            put32(m->header + GL_AT_MESSAGE, m->id);
            e->sent[e->next_sequence++ % RING] = m;
            heap_put(&m->path->messages, &m->turn, key_of(e, m));
            m->path->backlog += m->ready;
            m->traced = e->config.trace_every && m->path->begun++ % e->config.trace_every == 0;
            e->statistics.messages_sent++;
        }
    }
}

static void start(gl_engine *e, tx_message *m) {
    m->started = true;
    m->order = e->order++;
    e->unstopped++;
    heap_put(&e->waiting[m->budget > 0], &m->turn, key_of(e, m));
    activate(e);
}

void tx_begin(gl_engine *e, tx_message *m) {
    if (!m->reads_own) return;
    for (unsigned k = 0; k < m->link->count; k++) {
        const segment *s = &m->link->segments[k];
        if (s->node->from_count) continue;
        for (uint32_t i = 0; m->queue && i < s->node->slices; i++) m->queue[m->ready + i] = (uint16_t)(s->start + i);
        m->ready += s->node->slices;
    }
    start(e, m);
}

void tx_ready(gl_engine *e, tx_message *m, uint32_t slice) {
    m->queue[m->ready++] = (uint16_t)slice;
    if (!m->started) {
        start(e, m);
    } else if (m->active) {
        m->path->backlog++;
        if (m->sent + 1 == m->ready) heap_put(&m->path->messages, &m->turn, key_of(e, m));
    }
}

tx_message *find_sent(gl_engine *e, uint32_t id) {
    tx_message *m = *slot_of(e, id);
    return m && m->id == id ? m : NULL;
}

target *find_target(tx_message *m, unsigned rank) {
    for (unsigned i = 0; i < m->targets; i++)
        if (m->target[i].rank == rank) return &m->target[i];
    return NULL;
}

void tx_stopped(gl_engine *e, tx_message *m, const uint8_t *received) {
    message_stopped(e, m, received);
    activate(e);
}

static void fill_header(uint8_t *h, const tx_message *m, unsigned kind, uint32_t slice, const view *v) {
    memcpy(h, m->header, GL_HEADER);
    h[0] |= (uint8_t)kind;
    h[GL_AT_MAGNITUDE] = v->magnitude;
    put16(h + GL_AT_LAYER, v->layer);
    put16(h + GL_AT_SLICE, (uint16_t)slice);
    put16(h + GL_AT_LENGTH, v->length);
}

void put_header(const gl_engine *e, uint8_t *h, const tx_message *m, unsigned kind, uint32_t slice) {
    const view v = view_of(e, m, slice);
    fill_header(h, m, kind, slice, &v);
}

/* It goes before everything that is paced. */
void send_control(gl_engine *e, unsigned to, unsigned kind, const uint8_t *like, const void *payload, uint16_t length) {
    control *c = malloc(sizeof *c + GL_HEADER + length);
    if (!c) return; /* like a lost datagram: it is asked for again */
    c->next = NULL, c->to = to, c->length = GL_HEADER + length;
    memcpy(c->bytes, like, GL_HEADER);
    c->bytes[0] = (uint8_t)(GL_VERSION << 4 | kind);
    put16(c->bytes + GL_AT_SOURCE, e->config.rank);
    put16(c->bytes + GL_AT_LENGTH, length);
    if (length) memcpy(c->bytes + GL_HEADER, payload, length);
    *e->controls_tail = c;
    e->controls_tail = &c->next;
}

/* A shorter datagram ends a UDP_SEGMENT batch, and a longer one can't follow. */
static bool fits(const gl_batch *b, const view *v, unsigned limit) {
    if (!b->datagrams) return true;
    size_t tail = 0;
    for (int i = 1; i <= b->pieces[b->datagrams - 1]; i++) tail += b->iov[b->iov_count - i].iov_len;
    return b->datagrams < limit && tail == b->segment && GL_HEADER + v->length <= b->segment;
}

/* Of the datagram that is being added. */
static void add_piece(gl_batch *b, const uint8_t *bytes, size_t length) {
    b->iov[b->iov_count++] = (struct iovec){(void *)bytes, length};
    b->pieces[b->datagrams]++;
}

/* Adds a slice, if it fits; what is sent is counted for its receiver. */
static bool add_slice(gl_engine *e, gl_batch *b, const tx_message *m, unsigned kind, uint32_t slice, path *p, unsigned limit) {
    const view v = view_of(e, m, slice);
    if (!fits(b, &v, limit)) return false;
    uint8_t *h = v.header ? v.header : b->headers[b->datagrams];
    fill_header(h, m, kind, slice, &v);
    if (kind == GL_KIND_DATA && m->sent + 1 == m->slices) h[GL_AT_FLAGS] |= GL_FLAG_END;
    add_piece(b, h, v.header ? GL_HEADER + v.length : GL_HEADER);
    if (!v.header && v.length) add_piece(b, v.bytes, v.length);
    b->tos[b->datagrams++] = tos_of(e, h);
    if (b->datagrams == 1) b->segment = (uint16_t)(GL_HEADER + v.length);
    p->backlog--;
    gl_counts *c = counts_of(e, (unsigned)(p - e->paths), m->loss_class);
    c->bytes_sent += GL_HEADER + v.length;
    if (kind == GL_KIND_REPAIR)
        c->slices_repaired++, e->statistics.slices_repaired++;
    else
        c->slices_sent++, e->statistics.slices_sent++;
    return true;
}

/* Those of a multicast message are unicast to who misses them. */
static void send_repairs(gl_engine *e, gl_batch *b, path *p, unsigned limit, uint64_t now) {
    for (heap_item *first; (first = heap_first(&p->repairs));) {
        target *t = container_of(first, target, turn);
        tx_message *m = t->message;
        while (!test_bit(t->todo, t->cursor)) t->cursor = (t->cursor + 1) % m->slices;
        if (!add_slice(e, b, m, GL_KIND_REPAIR, t->cursor, p, limit)) return;
        clear_bit(t->todo, t->cursor);
        t->repaired_at[t->cursor] = (uint32_t)now | 1;
        t->repair_sequence[t->cursor] = p->sequence++;
        if (m->path == p) m->last_sequence = t->repair_sequence[t->cursor];
        if (--t->repairs) continue;
        heap_remove(&p->repairs, first);
        arm_probe(e, t, now);
    }
}

/* Of a message that has sent a slice: whether it is still the first one. */
static void next_turn(gl_engine *e, tx_message *m) {
    if (m->sent == m->ready) {
        heap_remove(&m->path->messages, &m->turn);
        return;
    }
    const uint64_t key = key_of(e, m);
    if (key != m->turn.key) heap_put(&m->path->messages, &m->turn, key);
}

static void send_first_pass(gl_engine *e, gl_batch *b, path *p, unsigned limit, uint64_t now) {
    for (heap_item *first; (first = heap_first(&p->messages));) {
        tx_message *m = container_of(first, tx_message, turn);
        const uint32_t slice = m->queue ? m->queue[m->sent] : m->sent;
        if (!add_slice(e, b, m, GL_KIND_DATA, slice, p, limit)) return;
        m->sent_at[slice] = (uint32_t)now | 1;
        m->path_sequence[slice] = m->last_sequence = p->sequence++;
        path_earn(p, m);
        const bool traced = m->traced && m->sent == m->slices / 2;
        if (traced) trace_send(e, m, slice);
        m->sent++;
        next_turn(e, m);
        /* In a ring what comes next may depend on these slices. */
        if (m->sent == m->slices || (m->link->exact && m->sent == m->ready))
            for (unsigned i = 0; i < m->targets; i++)
                if (!m->target[i].stopped) arm_probe(e, &m->target[i], now);
        if (traced) return; /* the trace is next */
    }
}

static void run_timers(gl_engine *e, uint64_t now) {
    for (heap_item *first; (first = heap_first(&e->timers)) && first->key <= now;) {
        timer *t = container_of(first, timer, item);
        timer_stop(e, t);
        if (t->received)
            check(e, container_of(t, rx_message, check), now);
        else
            probe(e, container_of(t, target, probe), now);
    }
}

/* The longest of the first controls, so that others to the same receiver fit behind it. */
static control **longest_control(gl_engine *e) {
    control **longest = &e->controls, **at = &e->controls;
    for (unsigned i = 0; *at && i < GL_BATCH; i++, at = &(*at)->next)
        if ((*at)->to == e->controls->to && (*at)->length > (*longest)->length) longest = at;
    return longest;
}

static void add_control(gl_engine *e, gl_batch *b, control **at, uint32_t *used) {
    control *c = *at;
    if (!(*at = c->next)) e->controls_tail = at;
    uint8_t *h = b->headers[b->datagrams], *payload = b->control + *used;
    memcpy(h, c->bytes, GL_HEADER);
    add_piece(b, h, GL_HEADER);
    if (c->length > GL_HEADER) {
        memcpy(payload, c->bytes + GL_HEADER, c->length - GL_HEADER);
        add_piece(b, payload, c->length - GL_HEADER);
    }
    b->tos[b->datagrams++] = tos_of(e, h);
    *used += c->length - GL_HEADER;
    e->statistics.datagrams_sent++;
    free(c);
}

/* A batch of what is to go to the receiver of the first control: often a STOP and a REPORT. */
static void send_controls(gl_engine *e, gl_batch *b) {
    uint32_t used = 0;
    control **at = longest_control(e);
    b->to = (uint16_t)(*at)->to, b->segment = (uint16_t)(*at)->length;
    add_control(e, b, at, &used);
    at = &e->controls;
    for (unsigned i = 0; *at && i < GL_BATCH && b->datagrams < GL_BATCH; i++) {
        const uint32_t length = (*at)->length;
        if ((*at)->to == b->to && length <= b->segment && used + length - GL_HEADER <= sizeof b->control) {
            add_control(e, b, at, &used);
            if (length < b->segment) return; /* a shorter one is the last */
        } else {
            at = &(*at)->next;
        }
    }
}

/* On the wire. */
static double batch_bytes(const gl_batch *b) {
    size_t bytes = (size_t)b->datagrams * FRAME_OVERHEAD;
    for (int k = 0; k < b->iov_count; k++) bytes += b->iov[k].iov_len;
    return (double)bytes;
}

int gl_transmit(gl_engine *e, gl_batch *b, uint64_t now) {
    run_timers(e, now);
    b->datagrams = 0, b->iov_count = 0;
    memset(b->pieces, 0, sizeof b->pieces);
    if (e->controls) {
        send_controls(e, b);
        port_spend(e->port, now, batch_bytes(b));
        return b->datagrams;
    }
    for (unsigned i = 0; i <= e->ranks; i++) {
        const unsigned turn = (e->turn + i) % (e->ranks + 1);
        path *p = &e->paths[turn];
        if (!p->backlog && p->busy) p->busy = false, p->idle_since = now;
        if (p->backlog && !p->busy) path_begin(e, p, now);
        if (!p->backlog || !path_open(e, p, now)) continue;
        if (!port_take(e, now)) return 0;
        const unsigned limit = path_burst(e, p);
        if (p->repairs.count)
            send_repairs(e, b, p, limit, now);
        else
            send_first_pass(e, b, p, limit, now);
        if (!b->datagrams) continue;
        const double bytes = batch_bytes(b);
        p->next_send = next_due(e->queue_time, p->next_send, now, bytes, p->rate);
        port_sent(e, now, bytes);
        b->to = (uint16_t)turn;
        e->turn = turn + 1;
        e->statistics.datagrams_sent += b->datagrams;
        return b->datagrams;
    }
    e->waits = false;
    return 0;
}

uint64_t gl_patience(const gl_engine *e) {
    bool sending = false;
    for (unsigned i = 0; i <= e->ranks; i++) sending |= e->paths[i].backlog > 0;
    /* What is there to send does not wait for arrivals, so they may wait for it: for its next batch. */
    const uint32_t parts = sending ? 1 : PATIENCE;
    uint32_t shortest = PATIENCE_MAX * parts;
    for (unsigned rank = 0; rank < e->ranks; rank++)
        if (rank != e->config.rank && e->peers[rank].srtt < shortest) shortest = e->peers[rank].srtt;
    /* From one batch to the next is enough; where that is less than a sleep costs, it is none. */
    const double batch = 1.25 * GL_BATCH_BYTES / e->rate, patience = shortest / parts;
    return batch < PATIENCE_MIN ? 0 : (uint64_t)(batch < patience ? batch : patience);
}

uint64_t gl_deadline(const gl_engine *e, uint64_t now) {
    if (e->controls) return now;
    const heap_item *first = heap_first(&e->timers);
    uint64_t deadline = first ? first->key : UINT64_MAX;
    for (unsigned i = 0; i <= e->ranks; i++) {
        if (!e->paths[i].backlog) continue;
        const uint64_t path = path_due(e, &e->paths[i]), at = path > e->port->next_send ? path : e->port->next_send;
        if (at < deadline) deadline = at;
    }
    return deadline > now ? deadline : now;
}
