/* SPDX-License-Identifier: Apache-2.0
 *
 * Every allocation of a scripted exchange fails in turn, or every n-th as the argument says. Each failure ends the job that met it,
 * which is told, or is made good like a lost datagram; another job on the same port always gets its results.
 */
#include "exhaustion.h"

#include <string.h>

#include "base/bits.h"
#include "engine/engine.h"

bool scarce, lasts;
unsigned long failing, allocations;

void out_of_memory_at(unsigned long n, bool from_then_on) { failing = n, allocations = 0, lasts = from_then_on; }

static bool none_left(void) {
    if (!scarce) return false;
    allocations++;
    return failing && (allocations == failing || (lasts && allocations > failing));
}

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__real_aligned_alloc(size_t, size_t);
void *__wrap_malloc(size_t n) { return none_left() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t m) { return none_left() ? NULL : __real_calloc(n, m); }
void *__wrap_realloc(void *p, size_t n) { return none_left() ? NULL : __real_realloc(p, n); }
void *__wrap_aligned_alloc(size_t a, size_t n) { return none_left() ? NULL : __real_aligned_alloc(a, n); }

enum { RANKS = 4, SLICE = 64, SLICES = 20, ELEMENTS = SLICES * 16, TENSORS = 2, STEPS = 1, QUEUE = 1 << 14, LONGEST = GL_HEADER + 128 };
enum { LIMIT = 5000000 /* us */ };

typedef struct {
    uint8_t job, to, bytes[LONGEST];
    uint32_t length;
} datagram;

/* Of the two jobs: the first one meets the shortage. */
typedef struct {
    unsigned number, workers, ranks, algorithm;
    gl_engine *engines[RANKS];
    float in[RANKS][TENSORS][ELEMENTS], out[RANKS][TENSORS][ELEMENTS];
    unsigned step, completed[RANKS];
    bool refused, failed;
} trial;

static datagram queue[QUEUE];
static unsigned head, tail;
static uint64_t now, seed;

static unsigned draw(unsigned limit) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % limit;
}

static bool over(const trial *t) { return t->refused || t->failed; }
static bool exact(unsigned tensor) { return tensor > 0; }

static void begin(trial *t, gl_port *port, unsigned servers) {
    const gl_loss losses[] = {{0, 0, 300000, 200000}};
    const gl_range classes[] = {{0, 10, 0, 255, 5}};
    const uint16_t racks[RANKS] = {1, 0, 1, 0};
    scarce = t->number == 0;
    for (unsigned rank = 0; rank < t->ranks; rank++) {
        const gl_config c = {
            .job = (uint16_t)(t->number + 1), .rank = (uint16_t)rank, .workers = (uint16_t)t->workers,
            .servers = (uint16_t)servers, .slice_bytes = SLICE, .token = 7, .window = 4, .rate = 1000000000, .buffer = 64000,
            .loss_count = 1, .losses = losses, .port = rank ? NULL : port, .memory = 1 << 14, .trace_every = 1, .tag = 1,
            .class_count = 1, .classes = classes, .critical = 500000, .racks = racks};
        if (!(t->engines[rank] = gl_engine_new(&c))) t->refused = true;
    }
    scarce = false;
}

static void submit(trial *t) {
    static const uint16_t layers[SLICES] = {0};
    uint16_t safe[SLICES];
    for (unsigned i = 0; i < SLICES; i++) safe[i] = 1;
    t->step++;
    for (unsigned rank = 0; rank < t->workers; rank++) {
        t->completed[rank] = 0;
        for (unsigned tensor = 0; tensor < TENSORS && !over(t); tensor++) {
            for (unsigned i = 0; i < ELEMENTS; i++) t->in[rank][tensor][i] = (float)(rank * 4 + tensor + i % 8 + t->step);
            const gl_submission s = {
                .step = t->step, .tensor = (uint16_t)tensor, .collective = GL_ALL_REDUCE,
                .algorithm = exact(tensor) ? (uint8_t)t->algorithm : GL_DIRECT, .element_type = GL_TYPE_FLOAT32,
                .reduction = GL_SUM, .elements = ELEMENTS, .in = (uint8_t *)t->in[rank][tensor],
                .out = (uint8_t *)t->out[rank][tensor], .layers = exact(tensor) ? safe : layers,
                .push_loss = exact(tensor) ? 0 : 300000, .pull_loss = exact(tensor) ? 0 : 200000};
            scarce = t->number == 0;
            t->refused |= gl_submit(t->engines[rank], &s, now) != 0;
            scarce = false;
        }
    }
}

static void send(trial *t, unsigned rank) {
    static gl_batch b;
    scarce = t->number == 0;
    while (gl_transmit(t->engines[rank], &b, now)) {
        int at = 0;
        for (unsigned k = 0; k < b.datagrams; k++) {
            datagram *d = &queue[tail % QUEUE];
            d->job = (uint8_t)t->number, d->to = (uint8_t)b.to, d->length = 0;
            for (unsigned i = 0; i < b.pieces[k]; i++, at++) {
                memcpy(d->bytes + d->length, b.iov[at].iov_base, b.iov[at].iov_len);
                d->length += (uint32_t)b.iov[at].iov_len;
            }
            if (draw(10)) tail++;
        }
        CHECK(tail - head < QUEUE / 2);
    }
    for (gl_event *e; (e = gl_next_event(t->engines[rank])); gl_event_free(e)) {
        t->completed[rank] += e->kind == GL_EVENT_COMPLETED;
        t->failed |= e->kind == GL_EVENT_FAILED;
        CHECK(e->kind != GL_EVENT_MISMATCH);
    }
    scarce = false;
}

static bool done(const trial *t) {
    for (unsigned rank = 0; rank < t->workers; rank++)
        if (t->completed[rank] < TENSORS) return false;
    return true;
}

static void check_results(const trial *t) {
    for (unsigned rank = 0; rank < t->workers; rank++)
        for (unsigned tensor = 0; tensor < TENSORS; tensor++)
            for (unsigned i = 0; exact(tensor) && i < ELEMENTS; i++) {
                float sum = 0;
                for (unsigned other = 0; other < t->workers; other++) sum += t->in[other][tensor][i];
                CHECK(t->out[rank][tensor][i] == sum);
            }
}

static void step(trial *t) {
    for (unsigned rank = 0; over(t) && rank < t->ranks; rank++) /* as the agent does */
        if (t->engines[rank]) gl_engine_leave(t->engines[rank]);
    if (over(t) || (t->step && !done(t))) return;
    if (t->step) check_results(t);
    if (t->step < STEPS) submit(t);
}

static bool ended(const trial *t) { return over(t) || (t->step == STEPS && done(t)); }

static void run(trial trials[2]) {
    const uint64_t end = now + LIMIT;
    while (!((lasts || ended(&trials[0])) && ended(&trials[1])) && now < end) {
        uint64_t next = UINT64_MAX;
        for (unsigned k = 0; k < 2; k++) {
            trial *t = &trials[k];
            step(t);
            for (unsigned rank = 0; rank < t->ranks && !over(t); rank++) {
                send(t, rank);
                const uint64_t its = gl_deadline(t->engines[rank], now);
                if (its < next) next = its;
            }
        }
        if (head == tail) now = next == UINT64_MAX || next <= now ? now + 1000 : next;
        for (; head != tail; head++) {
            const datagram *d = &queue[head % QUEUE];
            trial *t = &trials[d->job];
            if (over(t)) continue;
            scarce = t->number == 0;
            gl_receive(t->engines[d->to], d->bytes, d->length, 0, now);
            scarce = false;
        }
        now += 50;
    }
}

/* Returns whether an allocation failed. */
static bool attempt(unsigned servers, unsigned algorithm, unsigned long n, bool from_then_on) {
    static trial trials[2];
    memset(trials, 0, sizeof trials);
    gl_port *port = gl_port_new(1 << 20);
    out_of_memory_at(n, from_then_on);
    head = tail = 0, seed = 5, now = 1000000;
    for (unsigned k = 0; k < 2; k++) {
        trials[k].number = k, trials[k].workers = 3, trials[k].ranks = 3 + servers, trials[k].algorithm = algorithm;
        begin(&trials[k], port, servers);
    }
    run(trials);
    CHECK(!over(&trials[1]) && ended(&trials[1])); /* no other job */
    if (!from_then_on) CHECK(ended(&trials[0]));   /* it has its results, or it has been told */
    for (unsigned k = 0; k < 2; k++)
        for (unsigned rank = 0; rank < trials[k].ranks; rank++) gl_engine_free(trials[k].engines[rank]);
    gl_port_free(port);
    return allocations >= n;
}

unsigned long exhaust_processes(void), exhaust_sums(void), exhaust_absence(void);

int main(int count, char **arguments) {
    const unsigned long every = count > 1 ? strtoul(arguments[1], NULL, 10) : 1;
    unsigned long total = exhaust_processes() + exhaust_sums() + exhaust_absence();
    static const unsigned algorithms[] = {GL_RING, GL_STRAGGLAR, GL_GRID, GL_DIRECT};
    for (unsigned k = 0; k < 4; k++) {
        const unsigned algorithm = algorithms[k], servers = algorithm == GL_DIRECT;
        unsigned long n = 1 + k % every;
        while (attempt(servers, algorithm, n, false)) n += every;
        for (unsigned long first = 1; first < n; first += 11) attempt(servers, algorithm, first, true);
        total += n;
    }
    printf("%lu\n", total);
    return total < 300; /* it would show little */
}
