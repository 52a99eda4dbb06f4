/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiver: refuses what does not belong, places slices, and ends each message with a STOP once no more than its
 * budget is missing; otherwise it tells the sender with a BITMAP what to repair.
 */
#include "engine/internal.h"

static uint32_t reorder_delay(const gl_engine *e, unsigned rank) {
    const uint32_t half = e->peers[rank].srtt / 2;
    return half > REORDER_MIN ? half : REORDER_MIN;
}

void rx_free(gl_engine *e, rx_message *m) {
    if (!m) return;
    timer_stop(e, &m->check);
    message_detach(e, m);
    free(m->arrived), free(m->cut), free(m);
}

/* From now on holes are holes, and not waited for any longer. */
static void first_pass_over(gl_engine *e, rx_message *m) {
    if (!m->end_seen) timer_stop(e, &m->check);
    m->end_seen = true;
}

/* Every slice has arrived, or its header says that it is lost: nothing of the first pass is on its way any more. */
static bool all_seen(const rx_message *m) { return m->received + m->trimmed == m->slices; }

/* `bits`: what of the slices needs not be sent (again). */
static void answer(gl_engine *e, const rx_message *m, unsigned kind, const uint64_t *bits) {
    uint8_t h[GL_HEADER] = {0}, payload[GL_MAX_SLICES / 8];
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
    const uint32_t bytes = (m->slices + 7) / 8;
    for (uint32_t i = 0; i < bytes; i++) payload[i] = (uint8_t)(bits[i >> 3] >> (8 * (i & 7)));
    send_control(e, m->source, kind, h, payload, (uint16_t)bytes);
    if (kind == GL_KIND_STOP)
        e->statistics.stops_sent++;
    else
        e->statistics.bitmaps_sent++;
}

/* Asks for what is missing, as far as there is memory for it. Returns whether there is for any of it. */
static bool ask(gl_engine *e, const rx_message *m) {
    if (has_memory(e, m->slices - m->received)) return answer(e, m, GL_KIND_BITMAP, m->arrived), true;
    uint64_t bits[GL_MAX_SLICES / 64];
    memcpy(bits, m->arrived, words(m->slices) * sizeof *bits);
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < m->slices; i++) {
        if (test_bit(bits, i)) continue;
        if (has_room(e, m, i, wanted))
            wanted++;
        else
            set_bit(bits, i);
    }
    if (wanted) answer(e, m, GL_KIND_BITMAP, bits);
    return wanted;
}

static void complete(gl_engine *e, rx_message *m) {
    const uint32_t missing = m->slices - m->received;
    const uint32_t budget = budget_of(tolerated(e, m->loss_class, m->flags & GL_FLAG_PULL), m->slices);
    m->complete = true;
    timer_stop(e, &m->check);
    e->statistics.messages_received++;
    e->statistics.slices_expected += m->slices;
    e->statistics.slices_delivered += m->received;
    e->statistics.slices_lost += missing;
    e->statistics.budget_total += budget;
    gl_counts *c = counts_of(e, m->source, m->loss_class);
    c->slices_expected += m->slices, c->slices_delivered += m->received, c->slices_lost += missing;
    c->budget_total += budget;
    if (missing > budget) e->statistics.budget_violations++; /* counted apart from the decision that completed it */
    answer(e, m, GL_KIND_STOP, m->arrived);
    /* What is lost may be the last that the operation has waited for. */
    for (uint32_t i = 0; missing && m->link && i < m->slices; i++)
        if (!test_bit(m->arrived, i)) slice_lost(e, m, i);
}

/* What is missing for sure: everything once the sender is through, otherwise the holes below the highest slice and what
 * was trimmed. A trimmed slice's header overtakes slices that still queue, so it says nothing of those below it. */
static uint32_t holes(const rx_message *m) {
    return (m->end_seen ? m->slices : m->reach + m->ahead) - m->received;
}

void check(gl_engine *e, rx_message *m, uint64_t now) {
    const uint32_t missing = m->slices - m->received;
    if ((m->end_seen || all_seen(m)) && missing <= m->budget) {
        complete(e, m);
        return;
    }
    timer_stop(e, &m->check);
    if (holes(m) <= m->budget) return;
    if (!ask(e, m)) {
        timer_set(e, &m->check, now + MEMORY_WAIT);
        return;
    }
    /* A result's slices come in the order in which they could be reduced, so what looks like a hole may just be to come. */
    const uint64_t wait = 2 * reorder_delay(e, m->source) + e->peers[m->source].srtt;
    timer_set(e, &m->check, now + (m->end_seen ? wait : wait << m->in_vain));
    if (m->in_vain < BACKOFF_MAX) m->in_vain++;
}

void resume(gl_engine *e, rx_message *m, uint64_t now) {
    if (m->end_seen)
        check(e, m, now);
    else if (m->refused)
        ask(e, m);
}

static void check_later(gl_engine *e, rx_message *m, uint64_t now) {
    if (!is_set(&m->check)) timer_set(e, &m->check, now + reorder_delay(e, m->source));
}

/* Finds the operation of a new message, or begins to keep what comes of one that is not submitted yet. */
static bool attach(gl_engine *e, rx_message *m, uint64_t now) {
    const bool pull = m->flags & GL_FLAG_PULL;
    if (is_server(e) ? pull || m->source >= e->config.workers : !pull && m->source >= e->config.workers)
        return e->statistics.bad_source++, false;
    operation *o = find_operation(e, m->step, m->tensor);
    if (!o && is_server(e)) {
        if (!(o = operation_of_server(e, m, now))) return e->statistics.bad_header++, false;
    } else if (!o) {
        if (!(o = operation_new(m->step, m->tensor))) return e->statistics.no_memory++, false;
        operation_insert(e, o);
    }
    if (o->planned) {
        if (!operation_attach(e, o, m)) return e->statistics.bad_range++, false;
    } else {
        m->operation = o;
        m->next_early = o->early;
        o->early = m;
    }
    expect_streams(e, m, now);
    return true;
}

/* The message that a DATA, REPAIR or PROBE header speaks of; made if it is new. NULL: not (or no longer) wanted. */
static rx_message *find_message(gl_engine *e, unsigned source, const uint8_t *h, uint64_t now) {
    const uint32_t id = get32(h + GL_AT_MESSAGE), distance = id - e->config.message_base - source;
    if (distance % e->stride) return e->statistics.bad_message++, NULL;
    rx_message **slot = &e->peers[source].ring[distance / e->stride % RING];
    rx_message *m = *slot;
    const uint32_t loss_class = class_of(e, get16(h + GL_AT_LAYER));
    if (m && m->id == id) {
        if (m->slices != get16(h + GL_AT_SLICES) || m->step != get32(h + GL_AT_STEP) ||
            m->tensor != get16(h + GL_AT_TENSOR) || m->encoding != h[GL_AT_ELEMENT_TYPE])
            return e->statistics.bad_message++, NULL;
        if (m->loss_class != loss_class) return e->statistics.bad_class++, NULL;
        return m;
    }
    if (m && (int32_t)(id - m->id) < 0) return e->statistics.slices_late++, NULL;
    if (m && (!m->complete || m->operation)) return e->statistics.bad_message++, NULL;
    m = calloc(1, sizeof *m);
    if (!m) return e->statistics.no_memory++, NULL;
    m->id = id, m->source = (uint16_t)source, m->flags = h[GL_AT_FLAGS] & (GL_FLAG_PULL | GL_FLAG_MULTICAST);
    m->step = get32(h + GL_AT_STEP), m->tensor = get16(h + GL_AT_TENSOR);
    m->slices = get16(h + GL_AT_SLICES), m->budget = get16(h + GL_AT_BUDGET);
    m->encoding = h[GL_AT_ELEMENT_TYPE], m->layer = get16(h + GL_AT_LAYER);
    m->loss_class = loss_class, m->check.received = true;
    m->arrived = calloc(words(m->slices), sizeof *m->arrived);
    if (!m->arrived) e->statistics.no_memory++;
    if (!m->arrived || !attach(e, m, now)) return rx_free(e, m), NULL;
    rx_free(e, *slot);
    return *slot = m;
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
    rx_message *m = find_message(e, source, h, now);
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
    rx_message *m = find_message(e, source, h, now);
    if (!m) return;
    const uint32_t slice = get16(h + GL_AT_SLICE);
    if (m->complete) {
        e->statistics.slices_late++, counts_of(e, source, m->loss_class)->slices_late++;
        /* The sender repairs what was declared lost, so it has not seen the STOP. */
        if ((h[0] & 15) == GL_KIND_REPAIR) answer(e, m, GL_KIND_STOP, m->arrived);
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
    if (!empty && !has_room(e, m, slice, 0)) {
        e->statistics.no_memory++;
        m->refused = true;
        if (h[GL_AT_FLAGS] & GL_FLAG_END) first_pass_over(e, m);
        proceed(e, m, false, now);
        return;
    }
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
    if (h[GL_AT_FLAGS] & GL_FLAG_END) first_pass_over(e, m);
    if (is_server(e)) m->operation->layers[slice] = get16(h + GL_AT_LAYER);
    slice_arrived(e, m, slice, h + GL_HEADER, length);
    proceed(e, m, !trimmed, now);
}

static void on_probe(gl_engine *e, unsigned source, const uint8_t *h, uint64_t now) {
    rx_message *m = find_message(e, source, h, now);
    if (!m) return;
    if (m->complete) {
        answer(e, m, GL_KIND_STOP, m->arrived);
        return;
    }
    if (h[GL_AT_FLAGS] & GL_FLAG_END) {
        first_pass_over(e, m);
        check(e, m, now);
    } else
        ask(e, m);
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
    if (get16(h + GL_AT_JOB) != e->config.job) {
        s->bad_job++;
        return;
    }
    if (get64(h + GL_AT_TOKEN) != e->config.token) {
        s->bad_token++;
        return;
    }
    if (source >= e->ranks || source == e->config.rank) {
        s->bad_source++;
        return;
    }
    e->peers[source].heard = now;
    if (kind == GL_KIND_TRIMMED ? length : get16(h + GL_AT_LENGTH) != length)
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
    else if (kind == GL_KIND_REPORT && length == GL_REPORT)
        on_report(e, source, h, h + GL_HEADER, now);
    else if (kind == GL_KIND_TRACE)
        on_trace(e, source, h, length);
    else
        s->bad_header++;
}
