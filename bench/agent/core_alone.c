/* SPDX-License-Identifier: Apache-2.0
 * As core_load.c, but with one engine, which has the cache to itself: what the other ranks send is written here, and not
 * counted. They go at one pace, a train of each in turn, of as many slices as a flow with its part of the link sends at once. As
 * hosts that begin together do (tx/lanes.c), they come in the order of their ranks, and begin with any: here with the middle one,
 * so half of them come before those that they are added to.
 * The clock's call takes up to 1.5 us where others have filled the cache, so as many slices are between two of them whatever
 * the number of ranks. */
#include "core_common.h"

#include "base/bits.h"
#include "base/sender.h"
#include "engine/state.h"
#include "rate/pacing.h"

enum {
    LONGEST = 44, /* slices of a train */
    AT_ONCE = 64  /* slices that come in before the clock is looked at, or more; batches that go out, at most */
};

/* Another rank, as it takes the result. */
typedef struct {
    uint32_t received, unreported, missing; /* slices; since the job began, since its last REPORT, of this step */
} peer;

/* What has been sent: the slices of a result. */
typedef struct {
    unsigned to, slices;
    uint8_t header[GL_HEADER];
} sent;

/* A datagram of another rank. */
typedef struct {
    uint32_t length;
    uint8_t bytes[GL_HEADER + GL_MAX_SLICES / 8];
} answer;

typedef struct {
    common of;
    unsigned stride;
    uint32_t slices, train, trains; /* of a contribution; slices of a train; trains that come in at once */
    gl_engine *engine;
    peer *peers;
    float *out;
    uint8_t *incoming[AT_ONCE];
    gl_batch batch;
    sent sent[AT_ONCE];
    answer answers[2 * AT_ONCE];
    unsigned answered;
} core_load;

void core_load_free(core_load *l) {
    if (!l) return;
    gl_engine_free(l->engine);
    free(l->peers), free(l->out), common_free(&l->of), free(l);
}

static uint32_t train_of(const common *c) {
    const uint32_t most = RATE / (c->ranks - 1) * BURST / (GL_HEADER + c->slice_bytes);
    const uint32_t fits = BUFFER_BYTES / (GL_HEADER + c->slice_bytes), longest = fits < LONGEST ? fits : LONGEST;
    return most < 1 ? 1 : most < longest ? most : longest;
}

/* NULL: memory is out. */
core_load *core_load_new(unsigned ranks, uint32_t elements, uint32_t slice_bytes) {
    core_load *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    if (!common_new(&l->of, ranks, elements, slice_bytes) || !(l->peers = calloc(ranks, sizeof *l->peers)) ||
        !(l->out = floats_new(&l->of, 1)) || !(l->engine = engine_of(&l->of, 0)))
        return core_load_free(l), NULL;
    for (l->stride = 1; l->stride < ranks;) l->stride *= 2;
    l->slices = (uint32_t)((elements * sizeof(float) + slice_bytes - 1) / slice_bytes);
    l->train = train_of(&l->of), l->trains = (AT_ONCE + l->train - 1) / l->train;
    for (uint32_t i = 0; i < l->trains; i++)
        if (!(l->incoming[i] = buffer_take(l->of.buffers))) return core_load_free(l), NULL;
    return l;
}

static void put_kind(uint8_t *h, unsigned kind, unsigned source, uint32_t length) {
    h[0] = (uint8_t)(GL_VERSION << 4 | kind);
    put_sender(h, 0, source);
    put16(h + GL_AT_LENGTH, (uint16_t)length);
}

/* Of a rank to what was sent to it. */
static void put_answer(core_load *l, const sent *s, unsigned kind, const uint8_t *payload, uint32_t length) {
    answer *a = &l->answers[l->answered++];
    memcpy(a->bytes, s->header, GL_HEADER);
    put_kind(a->bytes, kind, s->to, length);
    if (kind == GL_KIND_STOP) a->bytes[GL_AT_FLAGS] = GL_FLAG_PULL;
    memcpy(a->bytes + GL_HEADER, payload, length);
    a->length = GL_HEADER + length;
}

/* Slices of the result reach a rank, which answers as engines do. */
static void take(core_load *l, const sent *s) {
    peer *p = &l->peers[s->to];
    p->received += s->slices, p->unreported += s->slices, p->missing -= s->slices;
    if (p->unreported >= REPORT_EVERY || !p->missing) {
        uint8_t payload[GL_REPORT] = {0};
        put32(payload + GL_REPORT_AT_RECEIVED, p->received), put32(payload + GL_REPORT_AT_SHARE, RATE * 8000u);
        put32(payload + GL_REPORT_AT_ROOM, UINT32_MAX), put32(payload + GL_REPORT_AT_CLOCK, (uint32_t)l->of.now);
        p->unreported = 0;
        put_answer(l, s, GL_KIND_REPORT, payload, sizeof payload);
    }
    if (p->missing) return;
    uint8_t all[GL_MAX_SLICES / 8] = {0};
    for (uint32_t i = 0; i < l->slices; i++) all[i / 8] |= (uint8_t)(1 << i % 8);
    put_answer(l, s, GL_KIND_STOP, all, (l->slices + 7) / 8);
}

static unsigned kind_of(const gl_batch *b, unsigned piece) { return ((const uint8_t *)b->iov[piece].iov_base)[0] & 15; }

/* Of a batch that begins with one; its last datagram may be a control. */
static unsigned slices_of(const gl_batch *b) {
    const unsigned kind = kind_of(b, (unsigned)b->iov_count - b->pieces[b->datagrams - 1]);
    return b->datagrams - (kind != GL_KIND_DATA && kind != GL_KIND_REPAIR);
}

/* Sends batches of slices, or of control datagrams, and receives the answers. Whether there was any. */
static int send_some(core_load *l, int timed) {
    common *c = &l->of;
    core_figures *f = &c->figures;
    const bool control = l->engine->job.mail_first;
    unsigned batches = 0, count = 0, slices = 0;
    uint64_t begun = ns();
    for (int some = 1; some && batches < AT_ONCE && !l->engine->job.mail_first == !control; batches += some) {
        const gl_batch *b = &l->batch;
        if (!(some = gl_transmit(l->engine, &l->batch, c->now) > 0)) break;
        if (kind_of(b, 0) != GL_KIND_DATA && kind_of(b, 0) != GL_KIND_REPAIR) continue;
        sent *s = &l->sent[count++];
        s->to = b->to, s->slices = slices_of(b), slices += s->slices;
        memcpy(s->header, b->iov[0].iov_base, GL_HEADER);
    }
    const uint64_t took = since(begun, c->clock);
    if (timed) f->sent += slices, *(slices ? &f->sent_ns : &f->control_ns) += took;
    l->answered = 0;
    for (unsigned i = 0; i < count; i++) take(l, &l->sent[i]);
    if (!l->answered) return batches > 0;
    begun = ns();
    for (const answer *a = l->answers; a < l->answers + l->answered; a++) gl_receive(l->engine, a->bytes, a->length, 0, c->now);
    if (timed) f->control_ns += since(begun, c->clock);
    return 1;
}

/* The next slices of a rank's contribution, from this one on. Returns their bytes. */
static uint32_t contribute(const core_load *l, uint8_t *to, unsigned rank, uint32_t first, uint32_t count) {
    const common *c = &l->of;
    uint8_t *h = to;
    for (uint32_t slice = first; slice < first + count; slice++) {
        const size_t at = (size_t)slice * c->slice_bytes, left = c->elements * sizeof(float) - at;
        const uint32_t length = left < c->slice_bytes ? (uint32_t)left : c->slice_bytes;
        memset(h, 0, GL_HEADER);
        put_kind(h, GL_KIND_DATA, rank, length);
        h[GL_AT_MAGNITUDE] = 255, h[GL_AT_ELEMENT_TYPE] = GL_TYPE_FLOAT32 | GL_SUM << 4;
        put16(h + GL_AT_JOB, JOB), put64(h + GL_AT_TOKEN, TOKEN), put32(h + GL_AT_STEP, c->step);
        put32(h + GL_AT_MESSAGE, (c->step - 1) * l->stride + rank);
        put16(h + GL_AT_SLICE, (uint16_t)slice), put16(h + GL_AT_SLICES, (uint16_t)l->slices);
        if (slice + 1 == l->slices) h[GL_AT_FLAGS] = GL_FLAG_END;
        memcpy(h + GL_HEADER, (const uint8_t *)c->in + at, length);
        h += GL_HEADER + length;
    }
    return (uint32_t)(h - to);
}

/* Trains of so many ranks come in, one after the other, from the one whose turn it is on. */
static void receive_some(core_load *l, unsigned turn, unsigned ranks, uint32_t first, int timed) {
    common *c = &l->of;
    const uint32_t count = l->slices - first < l->train ? l->slices - first : l->train;
    uint32_t bytes[AT_ONCE];
    for (unsigned i = 0; i < ranks; i++) {
        const unsigned others = c->ranks - 1, rank = 1 + (turn + i + others / 2) % others;
        bytes[i] = contribute(l, l->incoming[i], rank, first, count);
    }
    const uint64_t begun = ns();
    for (unsigned i = 0; i < ranks; i++) {
        receive_train(l->engine, l->incoming[i], bytes[i], GL_HEADER + c->slice_bytes, false, count > 8, c->now);
        l->incoming[i] = buffer_exchange(c->buffers, l->incoming[i]);
        c->now += count * (GL_HEADER + c->slice_bytes) / RATE; /* the link is full */
    }
    if (timed) c->figures.received_ns += since(begun, c->clock), c->figures.received += (uint64_t)count * ranks;
}

/* As in core_load.c. */
int core_load_run(core_load *l, int timed, core_figures *figures) {
    common *c = &l->of;
    memset(l->out, 0, c->elements * sizeof(float));
    c->figures = *figures;
    c->step++;
    for (unsigned rank = 1; rank < c->ranks; rank++) l->peers[rank].missing = l->slices;
    if (submit(c, l->engine, l->out, timed)) return -1;
    for (uint32_t first = 0; first < l->slices; first += l->train)
        for (unsigned turn = 0, some; turn < c->ranks - 1; turn += some) {
            some = c->ranks - 1 - turn < l->trains ? c->ranks - 1 - turn : l->trains;
            receive_some(l, turn, some, first, timed);
            while (send_some(l, timed)) {}
        }
    if (!completed(l->engine)) return -1;
    for (unsigned steps = MOST; !gl_engine_idle(l->engine);) {
        if (send_some(l, timed)) continue;
        if (!--steps) return -1;
        c->now += STEP;
    }
    check(c, l->out);
    *figures = c->figures;
    return 0;
}
