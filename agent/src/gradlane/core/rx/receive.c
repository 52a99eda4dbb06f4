/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The receiver: refuses what does not belong, places slices, and ends each message with a STOP once no more than its
 * budget is missing; otherwise it tells the sender with a BITMAP what to repair.
 */
#include <stdlib.h>

#include "base/bits.h"
#include "rx/answer.h"
#include "rx/message.h"

enum {
    REORDER_MIN = 50,   /* us */
    BACKOFF_MAX = 5,    /* doublings of the time from one BITMAP to the next */
    MEMORY_WAIT = 1000, /* us until a message that there was no memory for is looked at again */
};

bool rx_new(rx *x, job *j) {
    x->job = j;
    x->sources = calloc(j->ranks, sizeof *x->sources);
    return x->sources;
}

void rx_free(rx *x) {
    for (unsigned rank = 0; x->sources && rank < x->job->ranks; rank++) {
        for (unsigned i = 0; x->sources[rank].ring && i < RING; i++) rx_message_free(x->job, x->sources[rank].ring[i]);
        free(x->sources[rank].ring);
    }
    free(x->sources);
}

static rx_message **slot_of(rx *x, unsigned source, uint32_t distance) {
    return &x->sources[source].ring[(distance >> x->job->stride_bits) % RING];
}

void rx_forget(rx *x, rx_message *m) {
    *slot_of(x, m->source, m->id - x->job->config.message_base - m->source) = NULL;
    rx_message_free(x->job, m);
}

void rx_drop_source(rx *x, unsigned rank) {
    for (unsigned i = 0; x->sources[rank].ring && i < RING; i++)
        if (x->sources[rank].ring[i]) rx_forget(x, x->sources[rank].ring[i]);
    x->sources[rank].incoming[0] = x->sources[rank].incoming[1] = (incoming){0};
}

static uint32_t reorder_delay(const rx *x, unsigned rank) {
    const rtt *path = &x->job->rtts[rank];
    const uint32_t spread = rtt_spread(path, path->srtt / 2);
    return spread > REORDER_MIN ? spread : REORDER_MIN;
}

/* From now on holes are holes, and not waited for any longer. */
static void first_pass_over(rx *x, rx_message *m) {
    if (!m->end_seen) timer_stop(x->job, &m->check);
    m->end_seen = true;
}

static void complete(rx *x, rx_message *m) {
    job *j = x->job;
    const uint32_t missing = m->slices - m->received;
    const bool planned = m->link && (m->link->pull || m->tensor >= GL_FIRST_GROUP);
    const uint32_t loss = planned ? loss_of(m->link, m->link->segments[0].node->plan)
                          : tolerated_of(&j->config, m->tensor, m->loss_class, m->flags & GL_FLAG_PULL);
    m->complete = true;
    timer_stop(j, &m->check);
    j->statistics.messages_received++;
    j->statistics.slices_expected += m->slices;
    j->statistics.slices_delivered += m->received;
    j->statistics.slices_lost += missing;
    j->statistics.budget_total += m->budget;
    gl_counts *c = counts_of(j, m->source, m->loss_class);
    c->slices_expected += m->slices, c->slices_delivered += m->received, c->slices_lost += missing;
    c->budget_total += m->budget;
    /* Counted apart from the decision that completed it. */
    if (missing > budget_of(loss, m->slices)) j->statistics.budget_violations++;
    answer(x, m, GL_KIND_STOP, m->arrived);
    /* What is lost may be the last that the operation has waited for. */
    if (missing && m->link) j->up->lost(j->above, m);
}

/* What is missing for sure: everything once the sender is through, otherwise the holes below the highest slice and what
 * was trimmed. A trimmed slice's header overtakes slices that still queue, so it says nothing of those below it. */
static uint32_t holes(const rx_message *m) {
    return (m->end_seen ? m->slices : m->reach + m->ahead) - m->received;
}

static void check(rx *x, rx_message *m, uint64_t now) {
    job *j = x->job;
    const uint32_t missing = m->slices - m->received;
    if ((m->end_seen || all_seen(m)) && missing <= m->budget) {
        complete(x, m);
        return;
    }
    timer_stop(j, &m->check);
    if (holes(m) <= m->budget) return;
    if (!ask(x, m)) {
        timer_set(j, &m->check, now + MEMORY_WAIT);
        return;
    }
    /* A result's slices come in the order in which they could be reduced, so what looks like a hole may just be to come. */
    const uint64_t wait = 2 * reorder_delay(x, m->source) + j->rtts[m->source].srtt;
    timer_set(j, &m->check, now + (m->end_seen ? wait : wait << m->in_vain));
    if (m->in_vain < BACKOFF_MAX) m->in_vain++;
}

void on_check_due(rx *x, rx_message *m, uint64_t now) { check(x, m, now); }

void rx_resume(rx *x, rx_message *m, uint64_t now) {
    if (m->end_seen)
        check(x, m, now);
    else if (m->refused)
        ask(x, m);
}

static void check_later(rx *x, rx_message *m, uint64_t now) {
    if (!is_set(&m->check)) timer_set(x->job, &m->check, now + reorder_delay(x, m->source));
}

/* The message that a DATA, REPAIR or PROBE header speaks of; made if it is new. NULL: not (or no longer) wanted. */
static rx_message *find_message(rx *x, unsigned source, const uint8_t *h, uint64_t now) {
    job *j = x->job;
    const uint32_t id = get32(h + GL_AT_MESSAGE), distance = id - j->config.message_base - source;
    if (distance & ((1u << j->stride_bits) - 1)) return j->statistics.bad_message++, NULL;
    rx_message ***ring = &x->sources[source].ring;
    if (!*ring && !(*ring = calloc(RING, sizeof **ring))) return j->statistics.no_memory++, NULL;
    rx_message **slot = slot_of(x, source, distance);
    rx_message *m = *slot;
    const uint32_t loss_class = class_of(&j->config, get16(h + GL_AT_LAYER));
    if (m && m->id == id) {
        if (m->slices != get16(h + GL_AT_SLICES) || m->step != get32(h + GL_AT_STEP) ||
            m->tensor != get16(h + GL_AT_TENSOR) || m->encoding != h[GL_AT_ELEMENT_TYPE])
            return j->statistics.bad_message++, NULL;
        if (m->loss_class != loss_class) return j->statistics.bad_class++, NULL;
        return m;
    }
    if (m && (int32_t)(id - m->id) < 0) return j->statistics.slices_late++, NULL;
    if (m && (!m->complete || m->operation)) return j->statistics.bad_message++, NULL;
    m = calloc(1, sizeof *m);
    if (!m) return j->statistics.no_memory++, NULL;
    m->id = id, m->source = (uint16_t)source, m->flags = h[GL_AT_FLAGS] & (GL_FLAG_PULL | GL_FLAG_MULTICAST | GL_FLAG_CRITICAL);
    m->step = get32(h + GL_AT_STEP), m->tensor = get16(h + GL_AT_TENSOR);
    m->slices = get16(h + GL_AT_SLICES), m->budget = get16(h + GL_AT_BUDGET);
    m->encoding = h[GL_AT_ELEMENT_TYPE], m->layer = get16(h + GL_AT_LAYER);
    m->loss_class = loss_class, m->began = now, m->check.of = OF_RECEIVED;
    m->arrived = calloc(words(m->slices), sizeof *m->arrived);
    if (!m->arrived) j->statistics.no_memory++;
    if (!m->arrived || !j->up->attach(j->above, m, now)) return rx_message_free(j, m), NULL;
    rx_message_free(j, *slot);
    *slot = m;
    if (m->left_out) m->complete = true, answer(x, m, GL_KIND_STOP, m->arrived);
    return m;
}

/* After a slice's arrival or its loss became known. Once all have been seen there is nothing to wait for; `news`: that may
 * just have become so, which happens once, so that one BITMAP goes at once and further ones when repairs have had their time. */
static inline void proceed(rx *x, rx_message *m, bool news, uint64_t now) {
    if (all_seen(m) && (news || m->slices - m->received <= m->budget))
        check(x, m, now);
    else if (m->end_seen || holes(m) > m->budget)
        check_later(x, m, now);
}

/* The payload is lost, for sure and at once. It may yet come: as a REPAIR, or because the network had duplicated it. */
void on_trimmed(rx *x, unsigned source, const uint8_t *h, uint64_t now) {
    job *j = x->job;
    rx_message *m = find_message(x, source, h, now);
    if (!m) return;
    const uint32_t slice = get16(h + GL_AT_SLICE), length = get16(h + GL_AT_LENGTH);
    const uint32_t expected = expected_length(&j->config, m, slice);
    if (m->complete) {
        j->statistics.slices_late++, counts_of(j, source, m->loss_class)->slices_late++;
        return;
    }
    if (test_bit(m->arrived, slice) || (m->cut && test_bit(m->cut, slice))) {
        j->statistics.slices_duplicate++, counts_of(j, source, m->loss_class)->slices_duplicate++;
        return;
    }
    if (expected && length != expected && !(length == 0 && m->flags & GL_FLAG_PULL)) {
        j->statistics.bad_length++;
        return;
    }
    if (!m->cut && !(m->cut = calloc(words(m->slices), sizeof *m->cut))) {
        j->statistics.no_memory++;
        return;
    }
    set_bit(m->cut, slice);
    m->trimmed++;
    m->ahead += slice >= m->reach;
    j->statistics.trimmed++;
    proceed(x, m, true, now);
}

void on_slice(rx *x, unsigned source, const uint8_t *h, uint32_t length, uint64_t now) {
    job *j = x->job;
    rx_message *m = find_message(x, source, h, now);
    if (!m) return;
    const uint32_t slice = get16(h + GL_AT_SLICE);
    if (m->complete) {
        j->statistics.slices_late++, counts_of(j, source, m->loss_class)->slices_late++;
        /* The sender repairs what was declared lost, so it has not seen the STOP. */
        if ((h[0] & 15) == GL_KIND_REPAIR) answer(x, m, GL_KIND_STOP, m->arrived);
        return;
    }
    if (test_bit(m->arrived, slice)) {
        j->statistics.slices_duplicate++, counts_of(j, source, m->loss_class)->slices_duplicate++;
        return;
    }
    const bool empty = length == 0 && m->flags & GL_FLAG_PULL;
    uint32_t expected = expected_length(&j->config, m, slice);
    if (!expected) expected = length;
    if (!empty && (length != expected || !length)) {
        j->statistics.bad_length++;
        return;
    }
    if (!empty && !has_room(j, m, slice, 0)) {
        j->statistics.no_memory++;
        m->refused = true;
        if (h[GL_AT_FLAGS] & GL_FLAG_END) first_pass_over(x, m);
        proceed(x, m, false, now);
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
    if (h[GL_AT_FLAGS] & GL_FLAG_END) first_pass_over(x, m);
    j->up->arrived(j->above, m, slice, get16(h + GL_AT_LAYER), h + GL_HEADER, length);
    proceed(x, m, !trimmed, now);
}

void on_probe(rx *x, unsigned source, const uint8_t *h, uint64_t now) {
    rx_message *m = find_message(x, source, h, now);
    if (!m) return;
    if (m->complete) {
        answer(x, m, GL_KIND_STOP, m->arrived);
        return;
    }
    if (h[GL_AT_FLAGS] & GL_FLAG_END) {
        first_pass_over(x, m);
        check(x, m, now);
    } else
        ask(x, m);
}
