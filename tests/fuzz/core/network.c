/* SPDX-License-Identifier: Apache-2.0
 * The network: it loses, repeats, reorders, cuts and marks, as the input says. It keeps account of what each receiver was
 * handed, and holds the STOPs that receivers send against it: a slice counts only if it came, and no more than the budget
 * may be missing. */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/sender.h"
#include "engine/receiving.h"
#include "world.h"

enum { MOST_WAITING = 1024, KEPT = 64, MESSAGES = 1024 };

typedef struct {
    uint8_t *bytes;
    uint32_t length;
    uint16_t to;
} datagram;

/* What a receiver was handed of a message. */
typedef struct handed {
    struct handed *next;
    uint16_t to, source;
    uint32_t message;
    uint64_t slices[GL_MAX_SLICES / 64];
} handed;

static datagram waiting[MOST_WAITING], kept[KEPT];
static uint32_t waiting_count, kept_count;
static handed *messages[MESSAGES];

static handed *handed_of(uint16_t to, uint16_t source, uint32_t message) {
    handed **at = &messages[(message * 31 + to * 7 + source) % MESSAGES];
    while (*at && ((*at)->to != to || (*at)->source != source || (*at)->message != message)) at = &(*at)->next;
    if (!*at) {
        *at = calloc(1, sizeof **at);
        (*at)->to = to, (*at)->source = source, (*at)->message = message;
    }
    return *at;
}

/* A receiver may lose so much of a message that a header speaks of. */
static uint32_t most_lost(const uint8_t *h) {
    const unsigned layer = get16(h + GL_AT_LAYER);
    for (uint32_t i = 0; i < fuzz_world.loss_count; i++) {
        const gl_loss *loss = &fuzz_world.losses[i];
        const uint64_t ppm = h[GL_AT_FLAGS] & GL_FLAG_PULL ? loss->pull : loss->push;
        if (loss->first_layer <= layer && layer <= loss->last_layer)
            return (uint32_t)(ppm * get16(h + GL_AT_SLICES) / 1000000);
    }
    return 0;
}

static void check_stop(unsigned from, unsigned to, const uint8_t *h) {
    const uint32_t slices = get16(h + GL_AT_SLICES);
    const handed *known = handed_of((uint16_t)from, (uint16_t)to, get32(h + GL_AT_MESSAGE));
    uint32_t missing = 0;
    for (uint32_t i = 0; i < slices; i++) {
        const bool counts = h[GL_HEADER + (i >> 3)] >> (i & 7) & 1;
        fuzz_require(!counts || test_bit(known->slices, i), "a slice counts that never came");
        missing += !counts;
    }
    fuzz_require(missing <= most_lost(h), "a message ends with more than its budget missing");
}

static void keep(const datagram *d) {
    datagram *at = &kept[kept_count++ % KEPT];
    free(at->bytes);
    *at = *d;
    at->bytes = malloc(d->length);
    memcpy(at->bytes, d->bytes, d->length);
}

void network_push(unsigned to, const uint8_t *bytes, uint32_t length) {
    if (waiting_count == MOST_WAITING) return; /* lost: a queue is full */
    datagram *d = &waiting[waiting_count++];
    *d = (datagram){malloc(length), length, (uint16_t)to};
    memcpy(d->bytes, bytes, length);
    keep(d);
}

static datagram pop(uint32_t at) {
    const datagram found = waiting[at];
    memmove(&waiting[at], &waiting[at + 1], sizeof found * (--waiting_count - at));
    return found;
}

void network_transmit(unsigned rank) {
    static gl_batch batch;
    uint8_t bytes[GL_HEADER + (1 << 16)];
    gl_engine *e = fuzz_world.engines[rank];
    for (unsigned rounds = 0; rounds < 64 && waiting_count < MOST_WAITING && gl_transmit(e, &batch, fuzz_world.now); rounds++) {
        int piece = 0;
        fuzz_require(batch.to <= fuzz_world.ranks + 1 && batch.to != rank && batch.datagrams <= GL_BATCH, "a batch to nobody");
        for (unsigned i = 0; i < batch.datagrams; i++) {
            uint32_t length = 0;
            for (unsigned k = 0; k < batch.pieces[i]; k++, piece++) {
                memcpy(bytes + length, batch.iov[piece].iov_base, batch.iov[piece].iov_len);
                length += (uint32_t)batch.iov[piece].iov_len;
            }
            fuzz_require(length == batch.segment || (i + 1u == batch.datagrams && length < batch.segment),
                         "a datagram that no segmentation makes");
            if ((bytes[0] & 15) == GL_KIND_STOP) check_stop(rank, batch.to, bytes);
            for (unsigned to = 0; to < fuzz_world.workers && batch.to == fuzz_world.ranks; to++)
                if (to != rank) network_push(to, bytes, length);
            if (batch.to != fuzz_world.ranks) network_push(batch.to, bytes, length);
        }
        fuzz_require(piece == batch.iov_count, "pieces of no datagram");
    }
}

void network_events(void) {
    for (unsigned rank = 0; rank < fuzz_world.ranks; rank++)
        for (gl_event *event; (event = gl_next_event(fuzz_world.engines[rank]));) {
            calls_event(rank, event);
            gl_event_free(event);
        }
}

/* `bytes` of datagrams of `segment` bytes each but the last, as one. */
static void hand_over_train(unsigned to, const uint8_t *datagrams, uint32_t bytes, uint32_t segment, bool congested) {
    uint8_t *exact = malloc(bytes ? bytes : 1);
    memcpy(exact, datagrams, bytes);
    for (const uint8_t *h = exact; h + GL_HEADER <= exact + bytes; h += segment) {
        const unsigned kind = h[0] & 15, slice = get16(h + GL_AT_SLICE);
        if ((kind == GL_KIND_DATA || kind == GL_KIND_REPAIR) && slice < GL_MAX_SLICES)
            set_bit(handed_of((uint16_t)to, get_source(h), get32(h + GL_AT_MESSAGE))->slices, slice);
    }
    receive_train(fuzz_world.engines[to], exact, bytes, segment, congested, false, fuzz_world.now);
    free(exact);
}

static void hand_over(unsigned to, const uint8_t *bytes, uint32_t length, bool congested) {
    if (to > fuzz_world.ranks)
        summed_take(bytes, length);
    else
        hand_over_train(to, bytes, length, length, congested);
}

/* Some record of a switch, in front of those before it. */
static void trace(datagram *d) {
    uint8_t *longer = calloc(d->length + GL_HOP, 1);
    memcpy(longer, d->bytes, GL_HEADER);
    memcpy(longer + GL_HEADER + GL_HOP, d->bytes + GL_HEADER, d->length - GL_HEADER);
    longer[GL_HEADER + GL_HOP_AT_SWITCH_ID + 1] = fuzz_byte();
    d->length += GL_HOP;
    put16(longer + GL_AT_LENGTH, (uint16_t)(d->length - GL_HEADER));
    free(d->bytes);
    d->bytes = longer;
}

void network_deliver(void) {
    const uint32_t which = fuzz_number(), how = fuzz_byte();
    if (how % 16 == 15 && kept_count) {
        /* Once more, and late. */
        const datagram *d = &kept[which % (kept_count < KEPT ? kept_count : KEPT)];
        hand_over(d->to, d->bytes, d->length, false);
        return;
    }
    if (!waiting_count) return;
    datagram d = pop(which % waiting_count);
    const unsigned kind = d.bytes[0] & 15;
    if (how % 16 == 1 && kind == GL_KIND_DATA) {
        d.bytes[0] = (uint8_t)((d.bytes[0] & 0xf0) | GL_KIND_TRIMMED);
        d.length = GL_HEADER;
    } else if (how % 16 == 2) {
        d.length = fuzz_byte() % d.length;
    } else if (how % 16 < 5 && kind == GL_KIND_TRACE && !(d.bytes[GL_AT_FLAGS] & GL_FLAG_RETURNED)) {
        trace(&d);
    }
    if (how % 16 != 3) hand_over(d.to, d.bytes, d.length, how % 16 == 4);
    if (how % 16 == 5) hand_over(d.to, d.bytes, d.length, false);
    free(d.bytes);
}

/* What follows each other to a rank goes there as one, as far as the kernel would merge it. */
void network_deliver_all(void) {
    static uint8_t train[1 << 16];
    for (uint32_t left = waiting_count; left;) {
        const uint16_t to = waiting[0].to;
        const uint32_t segment = waiting[0].length;
        uint32_t bytes = 0;
        for (bool whole = true; whole && left && waiting[0].to == to && waiting[0].length <= segment; left--) {
            if (bytes && (to >= fuzz_world.ranks || bytes + segment > sizeof train)) break;
            const datagram d = pop(0);
            memcpy(train + bytes, d.bytes, d.length);
            bytes += d.length, whole = d.length == segment;
            free(d.bytes);
        }
        if (to < fuzz_world.ranks)
            hand_over_train(to, train, bytes, segment, false);
        else
            hand_over(to, train, bytes, false);
    }
}

/* ---- What nobody sent ---- */

static void sign(uint8_t *h) {
    h[0] = (uint8_t)(GL_VERSION << 4 | (h[0] & 15));
    put16(h + GL_AT_JOB, JOB), put64(h + GL_AT_TOKEN, fuzz_token);
}

static void put_field(uint8_t *h, unsigned field, uint32_t value) {
    switch (field) {
    case 0: h[0] = (uint8_t)(value & 15); break;
    case 1: h[GL_AT_MAGNITUDE] = (uint8_t)value; break;
    case 2: put16(h + GL_AT_SOURCE, (uint16_t)value); break;
    case 3: put16(h + GL_AT_LAYER, (uint16_t)value); break;
    case 4: put32(h + GL_AT_STEP, value); break;
    case 5: put16(h + GL_AT_TENSOR, (uint16_t)value); break;
    case 6: h[GL_AT_FLAGS] = (uint8_t)value; break;
    case 7: h[GL_AT_ELEMENT_TYPE] = (uint8_t)value; break;
    case 8: put32(h + GL_AT_MESSAGE, get32(h + GL_AT_MESSAGE) + value * fuzz_world.stride); break;
    case 9: put32(h + GL_AT_MESSAGE, value); break;
    case 10: put16(h + GL_AT_SLICE, (uint16_t)value); break;
    case 11: put16(h + GL_AT_SLICES, (uint16_t)value); break;
    case 12: put16(h + GL_AT_BUDGET, (uint16_t)value); break;
    default: put16(h + GL_AT_LENGTH, (uint16_t)value);
    }
}

void network_forge_changed(void) {
    uint8_t bytes[GL_HEADER + (1 << 16)] = {0};
    if (!kept_count) return;
    const datagram *d = &kept[fuzz_number() % (kept_count < KEPT ? kept_count : KEPT)];
    uint32_t length = d->length;
    const unsigned to = fuzz_below(4) ? d->to : fuzz_below(fuzz_world.ranks);
    memcpy(bytes, d->bytes, length);
    for (unsigned edits = 1 + fuzz_below(4); edits--;) {
        const unsigned what = fuzz_below(18);
        if (what < 14)
            put_field(bytes, what, fuzz_number());
        else if (what == 14)
            length = GL_HEADER + fuzz_number() % (2 * fuzz_world.slice_bytes + 2), put16(bytes + GL_AT_LENGTH, (uint16_t)(length - GL_HEADER));
        else if (what == 15)
            for (uint32_t i = GL_HEADER; i < length; i++) bytes[i] ^= 0xff;
        else if (length > GL_HEADER)
            bytes[GL_HEADER + fuzz_number() % (length - GL_HEADER)] = fuzz_byte();
    }
    sign(bytes);
    hand_over(to, bytes, length, fuzz_below(8) == 7);
}

void network_forge_new(void) {
    uint8_t bytes[GL_HEADER + (1 << 16)] = {0};
    uint32_t length, step;
    uint16_t tensor;
    const unsigned to = fuzz_below(fuzz_world.ranks), source = fuzz_below(fuzz_world.ranks + 1), kind = fuzz_below(9);
    const uint32_t slices = 1 + fuzz_number() % GL_MAX_SLICES;
    bytes[0] = (uint8_t)kind;
    calls_name(&step, &tensor);
    put_sender(bytes, 0, source), put32(bytes + GL_AT_STEP, step), put16(bytes + GL_AT_TENSOR, tensor);
    put32(bytes + GL_AT_MESSAGE, fuzz_world.message_base + fuzz_number() * fuzz_world.stride + (kind < GL_KIND_BITMAP ? source : to));
    put16(bytes + GL_AT_SLICES, (uint16_t)slices), put16(bytes + GL_AT_SLICE, (uint16_t)(fuzz_number() % slices));
    put16(bytes + GL_AT_LAYER, fuzz_byte() % 32), bytes[GL_AT_FLAGS] = fuzz_byte() % 64;
    put16(bytes + GL_AT_BUDGET, (uint16_t)fuzz_number());
    bytes[GL_AT_ELEMENT_TYPE] = fuzz_byte();
    switch (kind) {
    case GL_KIND_PROBE: length = 0; break;
    case GL_KIND_BITMAP:
    case GL_KIND_STOP: length = (slices + 7) / 8; break;
    case GL_KIND_REPORT: length = GL_REPORT; break;
    case GL_KIND_TRACE: length = fuzz_below(GL_MAX_HOPS + 2) * GL_HOP; bytes[GL_AT_FLAGS] |= fuzz_byte() & GL_FLAG_RETURNED; break;
    default: length = fuzz_below(4) ? fuzz_world.slice_bytes : fuzz_number() % (fuzz_world.slice_bytes + 16);
    }
    put16(bytes + GL_AT_LENGTH, (uint16_t)length);
    const uint32_t given = fuzz_below(8) * 4 < length ? fuzz_below(8) * 4 : length;
    for (uint32_t i = 0; i < length; i++) bytes[GL_HEADER + i] = i < given ? fuzz_byte() : (uint8_t)(bytes[GL_HEADER + i % 4] + i);
    sign(bytes);
    hand_over(to, bytes, GL_HEADER + (kind == GL_KIND_TRIMMED ? 0 : length), false);
}

/* ---- Time ---- */

uint64_t network_deadline(void) {
    uint64_t first = UINT64_MAX;
    for (unsigned rank = 0; rank < fuzz_world.ranks; rank++) {
        const uint64_t at = gl_deadline(fuzz_world.engines[rank], fuzz_world.now);
        if (at < first) first = at;
    }
    return first;
}

void network_end(void) {
    while (waiting_count) free(waiting[--waiting_count].bytes);
    for (unsigned i = 0; i < KEPT; i++) free(kept[i].bytes), kept[i] = (datagram){0};
    kept_count = 0;
    for (unsigned i = 0; i < MESSAGES; i++)
        for (handed *m; (m = messages[i]);) messages[i] = m->next, free(m);
}
