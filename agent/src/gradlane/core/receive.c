/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiver: refuses what does not belong, places slices, and ends each message with a STOP once no more than its
 * budget is missing; otherwise it tells the sender with a BITMAP what to repair.
 */
#include "internal.h"

static uint32_t reorder_delay(const gl_engine *e, unsigned rank) {
    const uint32_t half = e->peers[rank].srtt / 2;
    return half > REORDER_MIN ? half : REORDER_MIN;
}

void rx_release_buffer(gl_engine *e, rx_message *m) {
    if (m->operation || !m->buffer) return;
    e->memory -= (uint64_t)m->slices * e->config.slice_bytes;
    free(m->buffer);
    m->buffer = NULL;
}

void rx_free(gl_engine *e, rx_message *m) {
    if (!m) return;
    rx_release_buffer(e, m);
    rx_message **at = &e->open;
    while (*at && *at != m) at = &(*at)->next_open;
    if (*at) *at = m->next_open;
    free(m->arrived), free(m->cut), free(m);
}

static uint32_t bitmap_bytes(const rx_message *m, uint8_t *out) {
    const uint32_t bytes = (m->slices + 7) / 8;
    for (uint32_t i = 0; i < bytes; i++) out[i] = (uint8_t)(m->arrived[i >> 3] >> (8 * (i & 7)));
    return bytes;
}

/* From now on holes are holes, and not waited for any longer. */
static void first_pass_over(rx_message *m) {
    if (!m->end_seen) m->check_at = 0;
    m->end_seen = true;
}

/* Every slice has arrived, or its header says that it is lost: nothing of the first pass is on its way any more. */
static bool all_seen(const rx_message *m) { return m->received + m->trimmed == m->slices; }

static void answer(gl_engine *e, const rx_message *m, unsigned kind) {
    uint8_t h[GL_HEADER] = {0}, bits[GL_MAX_SLICES / 8];
    put16(h + GL_AT_JOB, e->config.job);
    put32(h + GL_AT_STEP, m->step);
    put16(h + GL_AT_TENSOR, m->tensor);
    h[GL_AT_FLAGS] = m->flags;
    put16(h + GL_AT_LAYER, m->layer);
    if (kind == GL_KIND_BITMAP && all_seen(m)) h[GL_AT_FLAGS] |= GL_FLAG_END;
    h[GL_AT_ELEMENT_TYPE] = m->encoding;
    put32(h + GL_AT_MESSAGE, m->id);
    put16(h + GL_AT_SLICES, (uint16_t)m->slices);
    put16(h + GL_AT_BUDGET, (uint16_t)m->budget);
    put64(h + GL_AT_TOKEN, e->config.token);
    send_control(e, m->source, kind, h, bits, (uint16_t)bitmap_bytes(m, bits));
    if (kind == GL_KIND_STOP)
        e->statistics.stops_sent++;
    else
        e->statistics.bitmaps_sent++;
}

static void complete(gl_engine *e, rx_message *m, uint64_t now) {
    const uint32_t missing = m->slices - m->received;
    const uint32_t budget = budget_of(tolerated(e, m->loss_class, m->flags & GL_FLAG_PULL), m->slices);
    m->complete = true;
    m->check_at = 0;
    rx_message **at = &e->open;
    while (*at != m) at = &(*at)->next_open;
    *at = m->next_open;
    e->statistics.messages_received++;
    e->statistics.slices_expected += m->slices;
    e->statistics.slices_delivered += m->received;
    e->statistics.slices_lost += missing;
    e->statistics.budget_total += budget;
    gl_counts *c = counts_of(e, m->source, m->loss_class);
    c->slices_expected += m->slices, c->slices_delivered += m->received, c->slices_lost += missing;
    c->budget_total += budget;
    if (missing > budget) e->statistics.budget_violations++; /* counted apart from the decision that completed it */
    answer(e, m, GL_KIND_STOP);
    if (m->operation) {
        /* A lost result keeps the worker's own gradient. */
        operation *o = m->operation;
        for (uint32_t i = 0; missing && i < m->slices; i++) {
            if (test_bit(m->arrived, i)) continue;
            const uint64_t offset = (uint64_t)(m->first + i) * e->config.slice_bytes;
            memcpy(o->out + offset, o->in + offset, m->first + i == o->slices - 1 ? o->last_length : e->config.slice_bytes);
        }
        m->buffer = NULL;
        shard_done(e, o);
    } else {
        aggregation *a = m->aggregation;
        if (!missing) return;
        /* resolve() may end the aggregation and this message's part in it, with the last missing slice. */
        uint32_t last = m->slices;
        while (test_bit(m->arrived, last - 1)) last--;
        for (uint32_t i = 0; i < last; i++)
            if (!test_bit(m->arrived, i)) resolve(e, a, i, now);
    }
}

/* What is missing for sure: everything once the sender is through, otherwise the holes below the highest slice and what
 * was trimmed. A trimmed slice's header overtakes slices that still queue, so it says nothing of those below it. */
static uint32_t holes(const rx_message *m) {
    return (m->end_seen ? m->slices : m->reach + m->ahead) - m->received;
}

static void check(gl_engine *e, rx_message *m, uint64_t now) {
    const uint32_t missing = m->slices - m->received;
    if ((m->end_seen || all_seen(m)) && missing <= m->budget) {
        complete(e, m, now);
        return;
    }
    m->check_at = 0;
    if (holes(m) <= m->budget) return;
    answer(e, m, GL_KIND_BITMAP);
    /* A result's slices come in the order in which they could be reduced, so what looks like a hole may just be to come. */
    const uint64_t wait = 2 * reorder_delay(e, m->source) + e->peers[m->source].srtt;
    m->check_at = now + (m->end_seen ? wait : wait << m->in_vain);
    if (m->in_vain < BACKOFF_MAX) m->in_vain++;
    due(e, m->check_at);
}

uint64_t receive_timers(gl_engine *e, uint64_t now) {
    uint64_t next = UINT64_MAX;
    for (rx_message *m = e->open, *following; m; m = following) {
        following = m->next_open;
        if (m->check_at && m->check_at <= now) check(e, m, now);
        if (!m->complete && m->check_at && m->check_at < next) next = m->check_at;
        if (m->complete) return now; /* completing can close others: start anew */
    }
    return next;
}

static void check_later(gl_engine *e, rx_message *m, uint64_t now) {
    if (m->check_at) return;
    m->check_at = now + reorder_delay(e, m->source);
    due(e, m->check_at);
}

static bool attach_push(gl_engine *e, rx_message *m) {
    if (e->aggregator == e->aggregators || m->source >= e->config.workers) return e->statistics.bad_source++, false;
    aggregation *a = find_aggregation(e, m->step, m->tensor);
    if (a && (a->slices != m->slices || a->encoding != m->encoding || a->sources[m->source])) {
        mismatch(e, m->step, m->tensor, m->source, m->slices);
        return e->statistics.bad_range++, false;
    }
    const uint64_t memory = (uint64_t)m->slices * e->config.slice_bytes;
    if (!a) a = aggregation_new(e, m->step, m->tensor, m->slices, m->encoding, m->loss_class);
    if (!a || e->memory + memory > e->config.memory || !(m->buffer = malloc(memory)))
        return e->statistics.no_memory++, false;
    e->memory += memory;
    m->aggregation = a;
    a->sources[m->source] = m;
    return true;
}

static bool attach_pull(gl_engine *e, rx_message *m) {
    const unsigned index = m->source - (e->config.servers ? e->config.workers : 0u);
    if (index >= e->aggregators) return e->statistics.bad_source++, false;
    operation *o = find_operation(e, m->step, m->tensor);
    if (!o) return e->statistics.bad_message++, false;
    m->first = gl_shard_start(o->slices, index, e->aggregators);
    const uint32_t expected = gl_shard_start(o->slices, index + 1, e->aggregators) - m->first;
    if (expected != m->slices || m->encoding != o->encoding) {
        mismatch(e, m->step, m->tensor, m->source, m->slices);
        return e->statistics.bad_range++, false;
    }
    m->operation = o;
    m->buffer = o->out + (uint64_t)m->first * e->config.slice_bytes;
    m->last_length = m->first + m->slices == o->slices ? o->last_length : e->config.slice_bytes;
    return true;
}

/* The message that a DATA, REPAIR or PROBE header speaks of; made if it is new. NULL: not (or no longer) wanted. */
static rx_message *find_message(gl_engine *e, unsigned source, const uint8_t *h) {
    const uint32_t id = get32(h + GL_AT_MESSAGE), distance = id - e->config.message_base - source;
    if (distance % e->stride) return e->statistics.bad_message++, NULL;
    rx_message **slot = &e->peers[source].ring[distance / e->stride % RING];
    rx_message *m = *slot;
    if (m && m->id == id) {
        if (m->slices == get16(h + GL_AT_SLICES) && m->step == get32(h + GL_AT_STEP) &&
            m->tensor == get16(h + GL_AT_TENSOR) && m->encoding == h[GL_AT_ELEMENT_TYPE] &&
            m->loss_class == class_of(e, get16(h + GL_AT_LAYER)))
            return m;
        return e->statistics.bad_message++, NULL;
    }
    if (m && (int32_t)(id - m->id) < 0) return e->statistics.slices_late++, NULL;
    if (m && !m->complete) return e->statistics.bad_message++, NULL;
    const bool pull = h[GL_AT_FLAGS] & GL_FLAG_PULL;
    m = calloc(1, sizeof *m);
    if (!m) return e->statistics.no_memory++, NULL;
    m->id = id, m->source = (uint16_t)source, m->flags = h[GL_AT_FLAGS] & (GL_FLAG_PULL | GL_FLAG_MULTICAST);
    m->step = get32(h + GL_AT_STEP), m->tensor = get16(h + GL_AT_TENSOR);
    m->slices = get16(h + GL_AT_SLICES), m->budget = get16(h + GL_AT_BUDGET);
    m->encoding = h[GL_AT_ELEMENT_TYPE], m->layer = get16(h + GL_AT_LAYER);
    m->loss_class = class_of(e, m->layer);
    m->arrived = calloc(words(m->slices), sizeof *m->arrived);
    if (!m->arrived || !(pull ? attach_pull(e, m) : attach_push(e, m))) {
        if (!m->arrived) e->statistics.no_memory++;
        return rx_free(e, m), NULL;
    }
    rx_free(e, *slot);
    *slot = m;
    m->next_open = e->open;
    e->open = m;
    return m;
}

/* 0: nobody has told yet how long the last slice is. */
static uint32_t expected_length(const gl_engine *e, const rx_message *m, uint32_t slice) {
    if (slice < m->slices - 1) return e->config.slice_bytes;
    return m->aggregation ? m->aggregation->last_length : m->last_length;
}

/* After a slice's arrival or its loss became known. Once all have been seen there is nothing to wait for; `news`: that may
 * just have become so, which happens once, so that one BITMAP goes at once and further ones when repairs have had their time. */
static void proceed(gl_engine *e, rx_message *m, bool news, uint64_t now) {
    if (all_seen(m) && (news || m->slices - m->received <= m->budget))
        check(e, m, now);
    else if (m->end_seen || holes(m) > m->budget)
        check_later(e, m, now);
}

/* The payload is lost, for sure and at once. It may yet come: as a REPAIR, or because the network had duplicated it. */
static void on_trimmed(gl_engine *e, unsigned source, const uint8_t *h, uint64_t now) {
    rx_message *m = find_message(e, source, h);
    if (!m) return;
    const uint32_t slice = get16(h + GL_AT_SLICE), length = get16(h + GL_AT_LENGTH), expected = expected_length(e, m, slice);
    if (m->complete) {
        e->statistics.slices_late++, counts_of(e, source, m->loss_class)->slices_late++;
        return;
    }
    if (test_bit(m->arrived, slice) || (m->cut && test_bit(m->cut, slice))) {
        e->statistics.slices_duplicate++, counts_of(e, source, m->loss_class)->slices_duplicate++;
        return;
    }
    if (expected && length != expected && !(length == 0 && m->flags & GL_FLAG_PULL)) {
        e->statistics.bad_length++;
        return;
    }
    if (!m->cut && !(m->cut = calloc(words(m->slices), sizeof *m->cut))) {
        e->statistics.no_memory++;
        return;
    }
    set_bit(m->cut, slice);
    m->trimmed++;
    m->ahead += slice >= m->reach;
    e->statistics.trimmed++;
    proceed(e, m, true, now);
}

static void on_slice(gl_engine *e, unsigned source, const uint8_t *h, uint32_t length, uint64_t now) {
    rx_message *m = find_message(e, source, h);
    if (!m) return;
    const uint32_t slice = get16(h + GL_AT_SLICE);
    if (m->complete) {
        e->statistics.slices_late++, counts_of(e, source, m->loss_class)->slices_late++;
        /* The sender repairs what was declared lost, so it has not seen the STOP. */
        if ((h[0] & 15) == GL_KIND_REPAIR) answer(e, m, GL_KIND_STOP);
        return;
    }
    if (test_bit(m->arrived, slice)) {
        e->statistics.slices_duplicate++, counts_of(e, source, m->loss_class)->slices_duplicate++;
        return;
    }
    const bool empty = length == 0 && m->flags & GL_FLAG_PULL;
    uint32_t expected = expected_length(e, m, slice);
    if (!expected) expected = length;
    if (!empty && (length != expected || !length)) {
        e->statistics.bad_length++;
        return;
    }
    uint8_t *to = m->buffer + (uint64_t)slice * e->config.slice_bytes;
    if (empty)
        memset(to, 0, expected);
    else
        memcpy(to, h + GL_HEADER, length);
    const bool trimmed = m->cut && test_bit(m->cut, slice);
    if (trimmed) {
        clear_bit(m->cut, slice);
        m->trimmed--;
        m->ahead -= slice >= m->reach;
    }
    set_bit(m->arrived, slice);
    m->received++;
    for (; m->reach <= slice; m->reach++) m->ahead -= m->cut && test_bit(m->cut, m->reach);
    if ((h[0] & 15) == GL_KIND_REPAIR) m->in_vain = 0;
    if (h[GL_AT_FLAGS] & GL_FLAG_END) first_pass_over(m);
    if (m->aggregation) {
        if (slice == m->slices - 1) m->aggregation->last_length = length;
        m->aggregation->layers[slice] = get16(h + GL_AT_LAYER);
        resolve(e, m->aggregation, slice, now);
    }
    proceed(e, m, !trimmed, now);
}

static void on_probe(gl_engine *e, unsigned source, const uint8_t *h, uint64_t now) {
    rx_message *m = find_message(e, source, h);
    if (!m) return;
    if (m->complete) {
        answer(e, m, GL_KIND_STOP);
        return;
    }
    first_pass_over(m);
    check(e, m, now);
}

void gl_receive(gl_engine *e, const uint8_t *h, uint32_t bytes, int congested, uint64_t now) {
    gl_statistics *s = &e->statistics;
    s->datagrams_received++;
    if (bytes < GL_HEADER || h[0] >> 4 != GL_VERSION) {
        s->bad_header++;
        return;
    }
    const unsigned kind = h[0] & 15, source = get16(h + GL_AT_SOURCE);
    const uint32_t length = bytes - GL_HEADER, slices = get16(h + GL_AT_SLICES);
    const bool pull = h[GL_AT_FLAGS] & GL_FLAG_PULL;
    if (get16(h + GL_AT_JOB) != e->config.job)
        s->bad_job++;
    else if (get64(h + GL_AT_TOKEN) != e->config.token)
        s->bad_token++;
    else if (source >= e->ranks || source == e->config.rank)
        s->bad_source++;
    else if (kind == GL_KIND_TRIMMED ? length : get16(h + GL_AT_LENGTH) != length)
        s->bad_length++;
    else if (!slices || slices > GL_MAX_SLICES || get16(h + GL_AT_SLICE) >= slices)
        s->bad_range++;
    else if (!gl_element_bytes(type_of(h[GL_AT_ELEMENT_TYPE])) || reduction_of(h[GL_AT_ELEMENT_TYPE]) > GL_PRODUCT || h[GL_AT_FLAGS] >= 2 * GL_FLAG_RETURNED ||
             (h[GL_AT_FLAGS] & GL_FLAG_RETURNED && kind != GL_KIND_TRACE))
        s->bad_header++;
    else if (get16(h + GL_AT_BUDGET) > budget_of(tolerated(e, class_of(e, get16(h + GL_AT_LAYER)), pull), slices))
        s->bad_budget++;
    else if (kind == GL_KIND_DATA || kind == GL_KIND_REPAIR || kind == GL_KIND_TRIMMED) {
        const uint32_t payload = get16(h + GL_AT_LENGTH); /* that it has, or had */
        if (payload > e->config.slice_bytes || payload % gl_element_bytes(type_of(h[GL_AT_ELEMENT_TYPE]))) {
            s->bad_length++;
            return;
        }
        if (kind != GL_KIND_TRIMMED) report(e, source, h, bytes, congested, now);
        if (kind == GL_KIND_TRIMMED)
            on_trimmed(e, source, h, now);
        else
            on_slice(e, source, h, payload, now);
    } else if (kind == GL_KIND_PROBE)
        on_probe(e, source, h, now);
    else if (kind == GL_KIND_BITMAP)
        on_bitmap(e, source, h, h + GL_HEADER, now);
    else if (kind == GL_KIND_STOP)
        on_stop(e, source, h, h + GL_HEADER, now);
    else if (kind == GL_KIND_REPORT && length == REPORT_BYTES)
        on_report(e, source, h, h + GL_HEADER, now);
    else if (kind == GL_KIND_TRACE)
        on_trace(e, source, h, length);
    else
        s->bad_header++;
}
