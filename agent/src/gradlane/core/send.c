/* SPDX-License-Identifier: Apache-2.0
 *
 * The sender: the first pass over each message, PROBE, repair of just what a BITMAP says is missing, and what goes next on
 * the paths, whose rates are in congestion.c.
 */
#include "internal.h"

tx_message *tx_new(gl_engine *e, path *p, unsigned targets, uint32_t slices) {
    (void)e;
    tx_message *m = calloc(1, sizeof *m + targets * sizeof *m->target);
    if (!m) return NULL;
    m->path = p, m->targets = targets, m->slices = slices;
    m->sent_at = calloc(slices, sizeof *m->sent_at);
    m->path_sequence = calloc(slices, sizeof *m->path_sequence);
    if (!m->sent_at || !m->path_sequence) return tx_free(m), NULL;
    for (unsigned i = 0; i < targets; i++) m->target[i].probe_at = UINT64_MAX;
    return m;
}

void tx_free(tx_message *m) {
    if (!m) return;
    for (unsigned i = 0; i < m->targets; i++) free(m->target[i].todo), free(m->target[i].repaired_at), free(m->target[i].repair_sequence);
    free(m->queue), free(m->sent_at), free(m->path_sequence), free(m);
}

static tx_message **slot_of(gl_engine *e, uint32_t id) {
    return &e->sent[(id - e->config.message_base - e->config.rank) / e->stride % RING];
}

/* Gives waiting messages their numbers, as far as the window reaches. */
static void activate(gl_engine *e) {
    while (e->oldest_sequence != e->next_sequence && !e->sent[e->oldest_sequence % RING]) e->oldest_sequence++;
    while (e->waiting && e->next_sequence - e->oldest_sequence < e->config.window) {
        tx_message *m = e->waiting;
        if (!(e->waiting = m->next)) e->waiting_tail = &e->waiting;
        m->id = e->config.message_base + e->next_sequence * e->stride + e->config.rank;
        e->sent[e->next_sequence++ % RING] = m;
        tx_message **at = &m->path->messages;
        while (*at) at = &(*at)->next;
        m->next = NULL;
        *at = m;
        m->path->backlog += m->ready;
        m->traced = e->config.trace_every && m->path->begun++ % e->config.trace_every == 0;
        e->statistics.messages_sent++;
    }
}

void tx_start(gl_engine *e, tx_message *m, uint64_t now) {
    (void)now;
    m->next = NULL;
    *e->waiting_tail = m;
    e->waiting_tail = &m->next;
    m->id = 0;
    activate(e);
}

static bool is_active(gl_engine *e, const tx_message *m) { return *slot_of(e, m->id) == m; }

void tx_ready(gl_engine *e, tx_message *m, uint32_t slice) {
    m->queue[m->ready++] = (uint16_t)slice;
    if (is_active(e, m)) m->path->backlog++;
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

static uint32_t slice_length(const gl_engine *e, const tx_message *m, uint32_t slice) {
    if (m->empty && test_bit(m->empty, slice)) return 0;
    return slice == m->slices - 1 ? m->last_length : e->config.slice_bytes;
}

void put_header(const gl_engine *e, uint8_t *h, const tx_message *m, unsigned kind, uint32_t slice) {
    h[0] = (uint8_t)(GL_VERSION << 4 | kind);
    h[GL_AT_MAGNITUDE] = m->magnitudes ? m->magnitudes[slice] : 255;
    put16(h + GL_AT_JOB, e->config.job);
    put16(h + GL_AT_SOURCE, e->config.rank);
    put16(h + GL_AT_LAYER, m->layers[slice]);
    put32(h + GL_AT_STEP, m->step);
    put16(h + GL_AT_TENSOR, m->tensor);
    h[GL_AT_FLAGS] = m->flags;
    h[GL_AT_ELEMENT_TYPE] = m->encoding;
    put32(h + GL_AT_MESSAGE, m->id);
    put16(h + GL_AT_SLICE, (uint16_t)slice);
    put16(h + GL_AT_SLICES, (uint16_t)m->slices);
    put16(h + GL_AT_BUDGET, (uint16_t)m->budget);
    put16(h + GL_AT_LENGTH, (uint16_t)slice_length(e, m, slice));
    put64(h + GL_AT_TOKEN, e->config.token);
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

void arm_probe(gl_engine *e, target *t, uint64_t now) {
    /* A PROBE overtakes slices that still queue, so it waits for the queues that the rate control allows. */
    t->probe_wait = 2 * e->peers[t->rank].srtt + (uint32_t)(e->queue_time / 2);
    t->probe_at = now + t->probe_wait;
    due(e, t->probe_at);
}

static void finish_target(gl_engine *e, tx_message *m, target *t, const uint8_t *received) {
    t->stopped = true;
    e->paths[t->rank].backlog -= t->repairs;
    t->repairs = 0;
    if (++m->stopped < m->targets) return;
    m->path->backlog -= m->ready - m->sent;
    tx_message **at = &m->path->messages;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    *slot_of(e, m->id) = NULL;
    if (m->operation)
        push_released(e, m, received);
    else
        pull_released(e, m);
    tx_free(m);
    activate(e);
}

void on_stop(gl_engine *e, unsigned source, const uint8_t *h, const uint8_t *bits, uint64_t now) {
    tx_message *m = find_sent(e, get32(h + GL_AT_MESSAGE));
    target *t = m ? find_target(m, source) : NULL;
    if (!t || t->stopped) return;
    if (get16(h + GL_AT_LENGTH) != (m->slices + 7) / 8) {
        e->statistics.bad_length++;
        return;
    }
    path_stopped(e, m, source, now);
    finish_target(e, m, t, bits);
}

static unsigned magnitude_of(const tx_message *m, uint32_t slice) { return m->magnitudes ? m->magnitudes[slice] : 255; }

/* Repairs what a BITMAP misses beyond the budget, the largest magnitudes first: the budget is for the rest. `settled`:
 * nothing of the first pass is in flight any more. */
static void queue_repairs(gl_engine *e, tx_message *m, target *t, const uint8_t *bits, bool settled, uint64_t now) {
    const uint32_t in_flight = e->peers[t->rank].srtt * 5 / 4;
    uint16_t missing[GL_MAX_SLICES];
    uint32_t count = 0, by_magnitude[256] = {0};
    for (uint32_t i = 0; i < m->sent; i++) {
        const uint32_t slice = m->queue ? m->queue[i] : i;
        const uint32_t last = t->repaired_at[slice] ? t->repaired_at[slice] : m->sent_at[slice];
        if (bits[slice >> 3] >> (slice & 7) & 1 || test_bit(t->todo, slice)) continue;
        if ((uint32_t)now - last < in_flight && !(settled && !t->repaired_at[slice])) continue;
        missing[count++] = (uint16_t)slice;
        by_magnitude[magnitude_of(m, slice)]++;
    }
    if (count <= m->budget) return;
    uint32_t need = count - m->budget;
    unsigned least = 255;
    for (uint32_t above = by_magnitude[255]; above < need; above += by_magnitude[least]) least--;
    uint32_t of_least = need;
    for (unsigned magnitude = least + 1; magnitude < 256; magnitude++) of_least -= by_magnitude[magnitude];
    for (uint32_t i = 0; i < count; i++) {
        const unsigned magnitude = magnitude_of(m, missing[i]);
        if (magnitude < least || (magnitude == least && !of_least)) continue;
        of_least -= magnitude == least;
        set_bit(t->todo, missing[i]);
        t->repairs++;
        e->paths[t->rank].backlog++;
    }
}

void on_bitmap(gl_engine *e, unsigned source, const uint8_t *h, const uint8_t *bits, uint64_t now) {
    tx_message *m = find_sent(e, get32(h + GL_AT_MESSAGE));
    target *t = m ? find_target(m, source) : NULL;
    if (!t || t->stopped) return;
    if (get16(h + GL_AT_LENGTH) != (m->slices + 7) / 8) {
        e->statistics.bad_length++;
        return;
    }
    if (!t->todo) {
        t->todo = calloc(words(m->slices), sizeof *t->todo);
        t->repaired_at = calloc(m->slices, sizeof *t->repaired_at);
        t->repair_sequence = calloc(m->slices, sizeof *t->repair_sequence);
        if (!t->todo || !t->repaired_at || !t->repair_sequence) {
            free(t->todo), free(t->repaired_at), free(t->repair_sequence);
            t->todo = NULL, t->repaired_at = t->repair_sequence = NULL;
            return;
        }
    }
    queue_repairs(e, m, t, bits, h[GL_AT_FLAGS] & GL_FLAG_END, now);
    if (m->sent == m->slices) arm_probe(e, t, now);
}

uint64_t send_timers(gl_engine *e, uint64_t now) {
    uint64_t next = UINT64_MAX;
    for (unsigned i = 0; i <= e->ranks; i++) {
        for (tx_message *m = e->paths[i].messages; m; m = m->next) {
            for (unsigned k = 0; k < m->targets; k++) {
                target *t = &m->target[k];
                if (t->stopped || t->probe_at == UINT64_MAX) continue;
                if (t->probe_at <= now && t->repairs) t->probe_at = now + t->probe_wait;
                if (t->probe_at <= now) {
                    uint8_t h[GL_HEADER];
                    put_header(e, h, m, GL_KIND_PROBE, 0);
                    send_control(e, t->rank, GL_KIND_PROBE, h, NULL, 0);
                    e->statistics.probes_sent++;
                    if (t->probe_wait < PROBE_WAIT_MAX) t->probe_wait = t->probe_wait * 3 / 2;
                    t->probe_at = now + t->probe_wait;
                }
                if (t->probe_at < next) next = t->probe_at;
            }
        }
    }
    return next;
}

static void add_slice(gl_engine *e, gl_batch *b, const tx_message *m, unsigned kind, uint32_t slice) {
    uint8_t *h = b->headers[b->datagrams];
    const uint32_t length = slice_length(e, m, slice);
    put_header(e, h, m, kind, slice);
    b->tos[b->datagrams++] = tos_of(e, h);
    b->iov[b->iov_count++] = (struct iovec){h, GL_HEADER};
    if (length)
        b->iov[b->iov_count++] =
            (struct iovec){(void *)(m->payload + (uint64_t)slice * e->config.slice_bytes), length};
    if (b->datagrams == 1) b->segment = (uint16_t)(GL_HEADER + length);
}

/* A shorter datagram ends a UDP_SEGMENT batch, and a longer one can't follow. */
static bool fits(const gl_engine *e, const gl_batch *b, const tx_message *m, uint32_t slice, unsigned limit) {
    if (!b->datagrams) return true;
    const struct iovec *last = &b->iov[b->iov_count - 1];
    const uint32_t tail = last->iov_len == GL_HEADER && last->iov_base == b->headers[b->datagrams - 1]
                              ? GL_HEADER : GL_HEADER + (uint32_t)last->iov_len;
    return b->datagrams < limit && tail == b->segment && GL_HEADER + slice_length(e, m, slice) <= b->segment;
}

static gl_counts *count_sent(gl_engine *e, const tx_message *m, unsigned rank, uint32_t slice) {
    gl_counts *c = counts_of(e, rank, m->loss_class);
    c->bytes_sent += GL_HEADER + slice_length(e, m, slice);
    return c;
}

static void send_repairs(gl_engine *e, gl_batch *b, tx_message *m, target *t, unsigned limit, uint64_t now) {
    while (t->repairs) {
        while (!test_bit(t->todo, t->cursor)) t->cursor = (t->cursor + 1) % m->slices;
        if (!fits(e, b, m, t->cursor, limit)) return;
        add_slice(e, b, m, GL_KIND_REPAIR, t->cursor);
        clear_bit(t->todo, t->cursor);
        t->repaired_at[t->cursor] = (uint32_t)now | 1;
        path *p = &e->paths[t->rank];
        t->repair_sequence[t->cursor] = p->sequence++;
        if (m->path == p) m->last_sequence = t->repair_sequence[t->cursor];
        t->repairs--;
        p->backlog--;
        e->statistics.slices_repaired++;
        count_sent(e, m, t->rank, t->cursor)->slices_repaired++;
    }
    arm_probe(e, t, now);
}

static void send_first_pass(gl_engine *e, gl_batch *b, tx_message *m, unsigned limit, uint64_t now) {
    while (m->sent < m->ready) {
        const uint32_t slice = m->queue ? m->queue[m->sent] : m->sent;
        if (!fits(e, b, m, slice, limit)) return;
        add_slice(e, b, m, GL_KIND_DATA, slice);
        m->sent_at[slice] = (uint32_t)now | 1;
        m->path_sequence[slice] = m->last_sequence = m->path->sequence++;
        path_earn(m->path, m);
        m->path->backlog--;
        e->statistics.slices_sent++;
        count_sent(e, m, (unsigned)(m->path - e->paths), slice)->slices_sent++;
        const bool traced = m->traced && m->sent == m->slices / 2;
        if (traced) trace_send(e, m, slice);
        if (++m->sent < m->slices) {
            if (traced) return; /* the trace is next */
            continue;
        }
        b->headers[b->datagrams - 1][GL_AT_FLAGS] |= GL_FLAG_END;
        for (unsigned i = 0; i < m->targets; i++)
            if (!m->target[i].stopped) arm_probe(e, &m->target[i], now);
    }
}

/* The repair that is due on a path, whichever message it belongs to: multicast messages are repaired by unicast. */
static bool next_repair(gl_engine *e, unsigned rank, tx_message **message, target **to) {
    const unsigned from[2] = {rank, e->ranks};
    for (unsigned i = 0; i < 2; i++)
        for (tx_message *m = e->paths[from[i]].messages; m; m = m->next) {
            target *t = find_target(m, rank);
            if (t && t->repairs) return *message = m, *to = t, true;
        }
    return false;
}

/* The message whose next slice belongs to the front-most layer: the next forward pass needs it first. */
static tx_message *next_message(path *p) {
    tx_message *best = NULL;
    uint16_t layer = 0;
    for (tx_message *m = p->messages; m; m = m->next) {
        if (m->sent == m->ready) continue;
        const uint16_t its = m->layers[m->queue ? m->queue[m->sent] : m->sent];
        if (!best || its < layer) best = m, layer = its;
    }
    return best;
}

int gl_transmit(gl_engine *e, gl_batch *b, uint64_t now) {
    if (now >= e->timer) {
        e->timer = UINT64_MAX;
        const uint64_t sender = send_timers(e, now), receiver = receive_timers(e, now);
        due(e, sender), due(e, receiver);
    }
    b->datagrams = 0, b->iov_count = 0;
    if (e->controls) {
        control *c = e->controls;
        if (!(e->controls = c->next)) e->controls_tail = &e->controls;
        memcpy(b->control, c->bytes, c->length);
        b->to = (uint16_t)c->to, b->segment = (uint16_t)c->length, b->datagrams = 1, b->iov_count = 1;
        b->iov[0] = (struct iovec){b->control, c->length};
        b->tos[0] = tos_of(e, b->control);
        free(c);
        e->statistics.datagrams_sent++;
        return 1;
    }
    if (!port_take(e, now)) return 0;
    for (unsigned i = 0; i <= e->ranks; i++) {
        const unsigned turn = (e->turn + i) % (e->ranks + 1);
        path *p = &e->paths[turn];
        if (!p->backlog && p->busy) p->busy = false, p->idle_since = now;
        if (p->backlog && !p->busy) path_begin(e, p, now);
        if (!p->backlog || !path_open(e, p, now)) continue;
        const unsigned limit = path_burst(e, p);
        tx_message *m = NULL;
        target *t = NULL;
        if (turn < e->ranks && next_repair(e, turn, &m, &t))
            send_repairs(e, b, m, t, limit, now);
        else if ((m = next_message(p)))
            send_first_pass(e, b, m, limit, now);
        if (!b->datagrams) continue;
        size_t bytes = 0;
        for (int k = 0; k < b->iov_count; k++) bytes += b->iov[k].iov_len;
        bytes += b->datagrams * FRAME_OVERHEAD;
        p->next_send = next_due(e->queue_time, p->next_send, now, (double)bytes, p->rate);
        port_sent(e, now, (double)bytes);
        b->to = (uint16_t)turn;
        e->turn = turn + 1;
        e->statistics.datagrams_sent += b->datagrams;
        return b->datagrams;
    }
    e->waits = false;
    return 0;
}

uint64_t gl_patience(const gl_engine *e) {
    uint32_t shortest = PATIENCE_MAX * PATIENCE;
    for (unsigned rank = 0; rank < e->ranks; rank++)
        if (rank != e->config.rank && e->peers[rank].srtt < shortest) shortest = e->peers[rank].srtt;
    return shortest / PATIENCE;
}

uint64_t gl_deadline(const gl_engine *e, uint64_t now) {
    if (e->controls) return now;
    uint64_t deadline = e->timer;
    for (unsigned i = 0; i <= e->ranks; i++) {
        if (!e->paths[i].backlog) continue;
        const uint64_t path = path_due(e, &e->paths[i]), at = path > e->port->next_send ? path : e->port->next_send;
        if (at < deadline) deadline = at;
    }
    return deadline > now ? deadline : now;
}
