/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The loop: what has arrived goes to the engine of its job, watched descriptors are served, and every engine sends what
 * is due. One lock is held but while the loop sleeps, so everything else in the core needs none.
 */
#define _GNU_SOURCE
#include "io/runner.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "io/clock.h"
#include "engine/receiving.h"
#include "io/datagrams.h"
#include "io/reader.h"

enum { ROUNDS = 4, READY_MAX = 16 };
enum { BATCHES = 16 }; /* of an engine, that are sent before what has come is looked at: what a core is behind, others are not */
/* Bytes that were there at once, and more behind them: to read them takes longer than to wake the second thread. */
enum { MUCH = 128 << 10 };

/* Sets of descriptors (epoll), and their places in what the loop polls. While it sleeps, an epoll set holds no file open:
 * what is taken out of it and closed is closed. Events of sockets have the descriptor, others the place of the source. */
enum { WATCHED, SOCKETS, SETS };

/* `ready` is NULL for a UDP socket. fd < 0: taken away, the place is free. */
typedef struct {
    int fd;
    gl_ready *ready;
    void *context;
} source;

/* An engine and where it sends. engine == NULL: taken away, the place is free. */
typedef struct {
    gl_engine *engine;
    outlet out;
    gl_drain *drain;
    void *context;
    gl_beats beats; /* to nobody, unless gl_runner_beat has said more */
    uint64_t beat_due;
} served;

struct gl_runner {
    pthread_mutex_t lock;
    int wake;
    bool stopping;
    int sets[SETS];
    source *sources;
    unsigned source_count;
    served *served;
    unsigned served_count;
    inlet in;
    reader *reader; /* NULL: the loop reads all */
    uint64_t bytes; /* received */
    gl_batch *batch;
    gl_runner_counts counts;
};

static void signal_fd(int fd) {
    const uint64_t one = 1;
    /* Fails only when the counter is full, and then the reader is being woken anyway. */
    if (write(fd, &one, sizeof one) < 0) return;
}

static void woken(void *context, uint64_t now) {
    (void)now;
    uint64_t count;
    /* EAGAIN: an earlier call has taken it. */
    if (read(((gl_runner *)context)->wake, &count, sizeof count) < 0) return;
}

/* Callbacks take the lock again; a caller that holds it runs at the loop's priority meanwhile. */
static int lock_new(pthread_mutex_t *lock) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    const int failed = pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return failed;
}

gl_runner *gl_runner_new(void) {
    gl_runner *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    if (lock_new(&r->lock)) return free(r), NULL;
    for (int i = 0; i < SETS; i++) r->sets[i] = epoll_create1(EPOLL_CLOEXEC);
    r->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    r->batch = malloc(sizeof *r->batch);
    if (r->sets[WATCHED] < 0 || r->sets[SOCKETS] < 0 || r->wake < 0 || !inlet_new(&r->in) || !r->batch ||
        gl_runner_watch(r, r->wake, woken, r))
        return gl_runner_free(r), NULL;
    return r;
}

int gl_runner_read_aside(gl_runner *r) { return (r->reader = reader_new(r->sets[SOCKETS], r->in.buffers)) ? 0 : -1; }

void gl_runner_free(gl_runner *r) {
    if (!r) return;
    reader_free(r->reader);
    for (unsigned i = 0; i < r->served_count; i++) free(r->served[i].out.peers), free(r->served[i].beats.to);
    for (int i = 0; i < SETS; i++)
        if (r->sets[i] >= 0) close(r->sets[i]);
    if (r->wake >= 0) close(r->wake);
    pthread_mutex_destroy(&r->lock);
    inlet_free(&r->in);
    free(r->sources), free(r->served), free(r->batch), free(r);
}

void gl_runner_lock(gl_runner *r) { pthread_mutex_lock(&r->lock); }
void gl_runner_unlock(gl_runner *r) { pthread_mutex_unlock(&r->lock); }
void gl_runner_wake(gl_runner *r) { signal_fd(r->wake); }

void gl_runner_stop(gl_runner *r) {
    gl_runner_lock(r);
    r->stopping = true;
    gl_runner_unlock(r);
    gl_runner_wake(r);
}

/* The table with a place `at`: it grows by one if that is behind its last. NULL if memory is out. */
static void *with_place(void *table, unsigned *count, size_t size, unsigned at) {
    if (at < *count) return table;
    void *grown = realloc(table, (at + 1) * size);
    if (grown) *count = at + 1;
    return grown;
}

int gl_runner_watch(gl_runner *r, int fd, gl_ready *ready, void *context) {
    gl_runner_lock(r);
    unsigned at = 0;
    while (at < r->source_count && r->sources[at].fd >= 0) at++;
    source *table = with_place(r->sources, &r->source_count, sizeof *table, at);
    int failed = -1;
    if (table) {
        struct epoll_event event = {.events = EPOLLIN};
        if (ready)
            event.data.u32 = at;
        else
            event.data.fd = fd;
        r->sources = table;
        failed = epoll_ctl(r->sets[ready ? WATCHED : SOCKETS], EPOLL_CTL_ADD, fd, &event);
        table[at] = (source){.fd = failed ? -1 : fd, .ready = ready, .context = context};
    }
    gl_runner_unlock(r);
    return failed;
}

int gl_runner_socket(gl_runner *r, int fd) { return gl_runner_watch(r, fd, NULL, NULL); }

void gl_runner_unwatch(gl_runner *r, int fd) {
    gl_runner_lock(r);
    for (unsigned i = 0; i < r->source_count; i++)
        if (r->sources[i].fd == fd) {
            epoll_ctl(r->sets[r->sources[i].ready ? WATCHED : SOCKETS], EPOLL_CTL_DEL, fd, NULL);
            r->sources[i] = (source){.fd = -1};
        }
    if (r->reader) reader_let_go(r->reader);
    gl_runner_unlock(r);
}

int gl_runner_add(gl_runner *r, gl_engine *engine, int socket, const struct sockaddr_storage *peers, unsigned count,
                  gl_drain *drain, void *context) {
    struct sockaddr_storage *copy = malloc(count * sizeof *copy);
    if (!copy) return -1;
    memcpy(copy, peers, count * sizeof *copy);
    gl_runner_lock(r);
    unsigned at = 0;
    while (at < r->served_count && r->served[at].engine) at++;
    served *table = with_place(r->served, &r->served_count, sizeof *table, at);
    if (table) {
        r->served = table;
        receive_into(engine, r->in.buffers);
        table[at] = (served){.engine = engine, .out = {.fd = socket, .peers = copy, .segmentation = true},
                             .drain = drain, .context = context};
    }
    gl_runner_unlock(r);
    if (!table) return free(copy), -1;
    gl_runner_wake(r);
    return 0;
}

static served *find_engine(const gl_runner *r, const gl_engine *engine) {
    for (unsigned i = 0; i < r->served_count; i++)
        if (r->served[i].engine == engine) return &r->served[i];
    return NULL;
}

void gl_runner_deliver(gl_runner *r, const gl_engine *engine, gl_drain *drain, void *context) {
    gl_runner_lock(r);
    served *s = find_engine(r, engine);
    if (s) s->drain = drain, s->context = context;
    gl_runner_unlock(r);
    gl_runner_wake(r);
}

int gl_runner_beat(gl_runner *r, const gl_engine *engine, const gl_beats *beats) {
    if (beats->length > GL_BEAT_BYTES) return -1;
    struct sockaddr_storage *copy = calloc(beats->count + 1, sizeof *copy);
    if (!copy) return -1;
    memcpy(copy, beats->to, beats->count * sizeof *copy);
    gl_runner_lock(r);
    served *s = find_engine(r, engine);
    if (s) {
        free(s->beats.to);
        s->beats = *beats, s->beats.to = copy, s->beat_due = 0;
    }
    gl_runner_unlock(r);
    if (!s) return free(copy), -1;
    gl_runner_wake(r);
    return 0;
}

static void beat(gl_runner *r, uint64_t now) {
    for (unsigned i = 0; i < r->served_count; i++) {
        served *s = &r->served[i];
        if (!s->beats.count || s->beat_due > now) continue;
        send_beats(&s->beats);
        s->beat_due = now + GL_BEAT_US;
    }
}

static void count_outlet(gl_runner_counts *counts, const outlet *out) {
    counts->unsegmented += out->unsegmented, counts->send_errors += out->errors;
    if (out->last_error) counts->send_errno = out->last_error;
}

void gl_runner_remove(gl_runner *r, gl_engine *engine) {
    gl_runner_lock(r);
    served *s = find_engine(r, engine);
    if (s) {
        count_outlet(&r->counts, &s->out);
        free(s->out.peers), free(s->beats.to), *s = (served){.engine = NULL};
    }
    gl_runner_unlock(r);
}

/* Of the engine that a datagram is for. */
static unsigned key_of(const uint8_t *datagram) {
    const unsigned job = (unsigned)datagram[GL_AT_JOB] << 8 | datagram[GL_AT_JOB + 1];
    return job * GL_MAX_SHARDS + (datagram[GL_AT_TOKEN + 7] & (GL_MAX_SHARDS - 1));
}

static gl_engine *engine_of(const gl_runner *r, unsigned key) {
    gl_engine *other = NULL;
    for (unsigned i = 0; i < r->served_count; i++) {
        gl_engine *engine = r->served[i].engine;
        if (!engine || gl_engine_job(engine) != key / GL_MAX_SHARDS) continue;
        if (gl_engine_shard(engine) == key % GL_MAX_SHARDS) return engine;
        other = engine; /* counts the wrong token */
    }
    return other;
}

/* What the kernel has put together may be of several jobs. */
static void take_in(void *context, const uint8_t *bytes, uint32_t left, uint32_t segment, bool congested, bool held,
                    uint64_t now) {
    gl_runner *r = context;
    r->bytes += left;
    do {
        uint32_t count = 1, size = segment < left ? segment : left;
        gl_engine *engine = size < GL_HEADER ? NULL : engine_of(r, key_of(bytes));
        for (; engine && left - size >= GL_HEADER && key_of(bytes + size) == key_of(bytes); count++)
            size += segment < left - size ? segment : left - size;
        r->counts.received += count;
        if (engine)
            receive_train(engine, bytes, size, segment, congested, held, now);
        else
            r->counts.foreign++;
        bytes += size, left -= size;
    } while (left);
}

/* From the sockets that have something: there is one for each multicast group. Returns whether there may be more. */
static bool receive(gl_runner *r) {
    if (r->reader && reader_reads(r->reader)) {
        const uint64_t before = r->counts.received;
        const bool more = reader_take(r->reader, take_in, r);
        r->counts.received_aside += r->counts.received - before;
        return more;
    }
    struct epoll_event events[READY_MAX];
    const int count = epoll_wait(r->sets[SOCKETS], events, READY_MAX, 0);
    const uint64_t before = r->bytes;
    bool more = count == READY_MAX;
    for (int i = 0; i < count; i++) more |= receive_batch(events[i].data.fd, &r->in, take_in, r) == RECEIVE_BATCH;
    if (more && r->reader && r->bytes - before >= MUCH) reader_hand_over(r->reader);
    return more;
}

static void serve_watched(gl_runner *r) {
    struct epoll_event events[READY_MAX];
    const int count = epoll_wait(r->sets[WATCHED], events, READY_MAX, 0);
    for (int i = 0; i < count; i++) {
        /* An earlier one's callback may have taken it away. */
        const source s = r->sources[events[i].data.u32];
        if (s.ready) s.ready(s.context, gl_now());
    }
}

/* A batch of each engine in turn, until none has one, or it has been long enough. */
static void transmit(gl_runner *r) {
    bool some = true;
    for (unsigned n = 0; n < BATCHES && some; n++) {
        some = false;
        for (unsigned i = 0; i < r->served_count; i++) {
            served *s = &r->served[i];
            const uint64_t now = gl_now();
            if (!s->engine || s->out.full_until > now || !gl_transmit(s->engine, r->batch, now)) continue;
            send_batch(&s->out, r->batch);
            r->counts.sent += r->batch->datagrams;
            some = true;
        }
    }
}

static void hand_out_events(gl_runner *r) {
    for (unsigned i = 0; i < r->served_count; i++) {
        const served *s = &r->served[i];
        if (s->engine && s->drain && gl_engine_has_event(s->engine)) s->drain(s->context, s->engine, gl_now());
    }
}

/* Until the first engine's deadline; UINT64_MAX: none has any. */
static uint64_t time_to_wait(const gl_runner *r, uint64_t now) {
    uint64_t deadline = UINT64_MAX;
    for (unsigned i = 0; i < r->served_count; i++) {
        const served *s = &r->served[i];
        uint64_t its = s->engine ? gl_deadline(s->engine, now) : UINT64_MAX;
        if (its < s->out.full_until) its = s->out.full_until;
        if (s->beats.count && s->beat_due < its) its = s->beat_due;
        if (its < deadline) deadline = its;
    }
    return deadline == UINT64_MAX ? deadline : deadline > now ? deadline - now : 0;
}

static uint64_t patience_of(const gl_runner *r, uint64_t now) {
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < r->served_count; i++) {
        const uint64_t its = r->served[i].engine ? gl_patience(r->served[i].engine, now) : UINT64_MAX;
        if (its < least) least = its;
    }
    return least == UINT64_MAX ? 0 : least;
}

/* Returns an errno, or 0. */
static int wait_for(struct pollfd *sets, unsigned count, uint64_t us) {
    const struct timespec timeout = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    return ppoll(sets, count, us == UINT64_MAX ? NULL : &timeout, NULL) < 0 && errno != EINTR ? errno : 0;
}

/* Sleeps without the lock until something is readable or `wait` us are over. For `patience` us of that, arrivals are left
 * to gather. Returns an errno, or 0. */
static int sleep_on(gl_runner *r, struct pollfd *sets, uint64_t wait, uint64_t patience) {
    const bool aside = r->reader && reader_reads(r->reader);
    sets[SOCKETS].fd = aside ? reader_ready(r->reader) : r->sets[SOCKETS];
    gl_runner_unlock(r);
    int error = 0;
    const uint64_t gather = wait < patience ? wait : patience;
    sets[WATCHED].revents = 0;
    if (gather) error = wait_for(sets, 1, gather);
    if (aside && !reader_sleeps(r->reader)) wait = 0;
    if (!error && !sets[WATCHED].revents && (!gather || wait > gather))
        error = wait_for(sets, SETS, wait == UINT64_MAX ? wait : wait - gather);
    gl_runner_lock(r);
    r->counts.wakeups++;
    return error;
}

int gl_runner_run(gl_runner *r) {
    prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul); /* ns: pacing needs finer sleeps than the default 50 us */
    prctl(PR_SET_NAME, "gradlane-io");
    struct pollfd sets[SETS];
    for (int i = 0; i < SETS; i++) sets[i] = (struct pollfd){.fd = r->sets[i], .events = POLLIN};
    uint64_t gathered = 0; /* until when arrivals are left to gather */
    int error = 0;
    gl_runner_lock(r);
    while (!r->stopping && !error) {
        const uint64_t received = r->counts.received;
        /* Whatever it woke for: what has arrived then needs no wake-up of its own. */
        bool more = true;
        if (sets[WATCHED].revents) serve_watched(r);
        for (int round = 0; round < ROUNDS; round++) {
            if (more) more = receive(r);
            transmit(r);
            if (!more) break;
        }
        hand_out_events(r);
        const uint64_t now = gl_now();
        beat(r, now);
        if (r->counts.received > received) gathered = now + patience_of(r, now);
        error = sleep_on(r, sets, more ? 0 : time_to_wait(r, now), gathered > now ? gathered - now : 0);
    }
    gl_runner_unlock(r);
    return error;
}

void gl_runner_statistics(gl_runner *r, gl_runner_counts *counts) {
    gl_runner_lock(r);
    *counts = r->counts;
    for (unsigned i = 0; i < r->served_count; i++) count_outlet(counts, &r->served[i].out);
    gl_runner_unlock(r);
}

void gl_runner_send_errors(gl_runner *r, const gl_engine *engine, uint64_t *count, int *last) {
    gl_runner_lock(r);
    const served *s = find_engine(r, engine);
    *count = s ? s->out.errors : 0, *last = s ? s->out.last_error : 0;
    gl_runner_unlock(r);
}
