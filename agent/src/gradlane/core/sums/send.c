/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Contributions are sent: each stream's in the order of their numbers, as far as its windows let it, and what seems lost before
 * anything new; of the streams the one with the front-most layer first. Reminders wait for no window, as windows wait for them.
 */
#include <string.h>

#include "arithmetic/fixed_point.h"
#include "base/sender.h"
#include "rate/pacing.h"
#include "sums/closing.h"
#include "sums/lost.h"
#include "sums/remind.h"
#include "sums/rerun.h"
#include "tx/tagging.h"

/* The part that a stream sends of next; NULL: nothing new is to be sent, or its number is not free. */
static const part *next_new(const stream *s) {
    const part *p = s->next_part < s->count ? &s->parts[s->next_part] : NULL;
    if (!p || p->stage != SUMMING || p->step != s->by_switch) return NULL;
    const uint32_t number = number_of(s, p, s->next_slice);
    return s->flights[number % s->window].state == FREE && closing_lets_send(s, number) ? p : NULL;
}

static bool may_send(const stream *s) {
    return s && (next_reminder(s) || (s->flying < (uint32_t)s->allowed && (flight_first(s, LOST) || next_new(s))));
}

static uint16_t layer_of(const gl_config *c, const stream *s, const part *p, uint32_t slice) {
    const uint32_t of_slice = c->slice_bytes / gl_element_bytes(s->element_type);
    return p->is.layers ? p->is.layers[(uint64_t)slice * per_slice(c) / of_slice] : 0;
}

static uint16_t next_layer(const gl_config *c, const stream *s) {
    const flight *lost = flight_first(s, LOST);
    if (next_reminder(s)) return get16(next_reminder(s) + GL_AT_LAYER);
    return lost ? layer_of(c, s, &s->parts[lost->part], lost->slice) : layer_of(c, s, next_new(s), s->next_slice);
}

static stream *most_urgent(const sums *x) {
    stream *best = NULL;
    for (unsigned i = 0; i < x->most && !x->halted; i++) {
        stream *s = x->streams[i];
        if (may_send(s) && (!best || next_layer(&x->job->config, s) < next_layer(&x->job->config, best))) best = s;
    }
    return best;
}

/* The next slice gets its number and its datagram. */
static flight *prepare(sums *x, stream *s) {
    const gl_config *c = &x->job->config;
    part *p = &s->parts[s->next_part];
    const uint32_t slice = s->next_slice, number = number_of(s, p, slice), n = elements_of(c, p, slice);
    const uint32_t item = gl_element_bytes(s->element_type), lane = gl_lane_bytes(c->sums.lanes);
    const uint32_t lanes = (n * lane + GL_SUM_WORD - 1) / GL_SUM_WORD * GL_SUM_WORD;
    const uint64_t at = (uint64_t)slice * per_slice(c) * item;
    flight *f = &s->flights[number % s->window];
    uint8_t *h = datagram_of(s, f), *sum = h + GL_HEADER;
    memset(h, 0, GL_HEADER + GL_SUM_BYTES);
    h[0] = GL_VERSION << 4 | GL_KIND_DATA;
    h[GL_AT_MAGNITUDE] = 255;
    put16(h + GL_AT_JOB, c->job), put_sender(h, 0, c->rank), put16(h + GL_AT_LAYER, layer_of(c, s, p, slice));
    put32(h + GL_AT_STEP, p->step), put16(h + GL_AT_TENSOR, p->is.tensor);
    h[GL_AT_FLAGS] = GL_FLAG_SUM;
    h[GL_AT_ELEMENT_TYPE] = (uint8_t)(c->sums.lanes | GL_SUM << 4);
    put32(h + GL_AT_MESSAGE, number), put16(h + GL_AT_SLICE, (uint16_t)slice), put16(h + GL_AT_SLICES, (uint16_t)p->slices);
    put16(h + GL_AT_LENGTH, (uint16_t)(GL_SUM_BYTES + lanes)), put64(h + GL_AT_TOKEN, c->token);
    put32(sum + GL_SUM_AT_GENERATION, s->generation);
    put16(sum + GL_SUM_AT_SLOT, (uint16_t)(s->tensor * 2 * s->window + number % (2 * s->window)));
    sum[GL_SUM_AT_EXPONENT] = (uint8_t)s->exponents[p->first + slice];
    x->job->statistics.sums_clipped +=
        gl_to_lanes(sum + GL_SUM_BYTES, c->sums.lanes, c->workers, lanes / lane, p->is.in + at, s->element_type, n,
                    s->exponents[p->first + slice], p->is.residual ? p->is.residual->values + at : NULL);
    f->part = (uint8_t)s->next_part, f->slice = slice, f->number = number, f->repaired = f->old = false;
    f->length = GL_HEADER + GL_SUM_BYTES + lanes;
    sum[GL_SUM_AT_EPOCH] = closing_sent(s, f);
    return f;
}

static uint32_t bytes_of(const uint8_t *h) { return GL_HEADER + get16(h + GL_AT_LENGTH); }

static uint32_t next_length(const gl_config *c, const stream *s) {
    const flight *lost = flight_first(s, LOST);
    if (next_reminder(s)) return bytes_of(next_reminder(s));
    if (lost) return lost->length;
    const uint32_t bytes = elements_of(c, next_new(s), s->next_slice) * gl_lane_bytes(c->sums.lanes);
    return GL_HEADER + GL_SUM_BYTES + (bytes + GL_SUM_WORD - 1) / GL_SUM_WORD * GL_SUM_WORD;
}

/* Takes what a stream sends next: its datagram. */
static const uint8_t *take(sums *x, stream *s, uint64_t now) {
    gl_statistics *count = &x->job->statistics;
    flight *f = flight_first(s, LOST);
    if (next_reminder(s)) return count->sums_repaired++, take_reminder(&x->job->config, s);
    if (f) {
        *datagram_of(s, f) = GL_VERSION << 4 | GL_KIND_REPAIR;
        put32(datagram_of(s, f) + GL_HEADER + GL_SUM_AT_MEMBERS, f->may_miss);
        f->repaired = true;
        count->sums_repaired++;
    } else {
        f = prepare(x, s);
        f->first_at = now, f->first_sequence = s->sequence;
        count->sums_sent++;
        if (++s->next_slice == s->parts[s->next_part].slices) s->next_part++, s->next_slice = 0;
    }
    flight_move(s, f, FLYING);
    f->sent_at = now, f->sequence = s->sequence++;
    if (!is_set(&s->due)) timer_set(x->job, &s->due, lost_at(s, f));
    return datagram_of(s, f);
}

static void add(sums *x, stream *s, gl_batch *b, uint64_t now) {
    const uint8_t *h = take(x, s, now);
    b->iov[b->iov_count++] = (struct iovec){(void *)h, bytes_of(h)};
    b->pieces[b->datagrams] = 1;
    b->tos[b->datagrams++] = tos_of(&x->job->config, h);
    if (b->datagrams == 1) b->segment = (uint16_t)bytes_of(h);
}

int sums_transmit(sums *x, gl_batch *b, uint64_t now) {
    job *j = x->job;
    b->datagrams = 0, b->iov_count = 0;
    rerun_work(x, now);
    stream *s = most_urgent(x);
    if (!s || !port_take(&j->tenant, now)) return 0;
    const unsigned limit = uplink_burst(&j->uplink, j->uplink.rate, port_free_at(j->tenant.port), now);
    double bytes = 0;
    for (bool shorter = false; b->datagrams < limit && !shorter && (s = most_urgent(x));)
        while (may_send(s) && b->datagrams < limit && !shorter) {
            const uint32_t length = next_length(&j->config, s);
            if (b->datagrams && length > b->segment) shorter = true;
            else add(x, s, b, now), shorter = length < b->segment, bytes += length + FRAME_OVERHEAD;
        }
    b->to = (uint16_t)(j->ranks + 1);
    port_sent(&j->tenant, bytes, sums_waiting(x), now);
    j->statistics.datagrams_sent += b->datagrams;
    return b->datagrams;
}

bool sums_waiting(const sums *x) { return most_urgent(x); }

uint64_t sums_deadline(const sums *x) {
    if (x->pending) return 0;
    return sums_waiting(x) ? port_free_at(x->job->tenant.port) : UINT64_MAX;
}

uint64_t sums_patience(const sums *x) {
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < x->most && !x->halted; i++)
        if (x->streams[i] && x->streams[i]->flying && x->streams[i]->rtt.srtt / 4 < least) least = x->streams[i]->rtt.srtt / 4;
    return least;
}
