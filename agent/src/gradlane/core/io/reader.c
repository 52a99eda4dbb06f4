/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What is read goes through a ring that one thread fills and the other empties. Each train in it holds its buffer.
 */
#define _GNU_SOURCE
#include "io/reader.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "io/clock.h"

enum {
    RING = 64,        /* trains, 4 MiB: what the loop may be behind */
    SETTLED_MS = 1,   /* nothing has come for so long: the loop's next sleep is as good */
    BEHIND_US = 20,   /* until it is looked again whether the loop has taken some */
    READY_MAX = 16,
};

typedef struct {
    const uint8_t *bytes;
    uint32_t length, segment;
    bool congested, held;
} train;

enum { LOOP, THREAD };

struct reader {
    int sockets, ready;
    inlet in;
    train ring[RING];
    uint32_t filled, taken; /* trains, ever */
    int owner;              /* of the sockets */
    bool asleep;            /* the loop, or about to be, until it is woken */
    bool slept;             /* the loop's: since it last looked */
    bool stopping;
    sem_t go;
    pthread_mutex_t reading;
    pthread_t thread;
};

/* What was put into the ring is seen by a loop that is about to sleep, or this sees that it is. */
static void wake_loop(reader *r) {
    const uint64_t one = 1;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (!__atomic_exchange_n(&r->asleep, false, __ATOMIC_SEQ_CST)) return;
    if (write(r->ready, &one, sizeof one) < 0) return; /* the counter is full: it is readable */
}

static void put(void *context, const uint8_t *bytes, uint32_t length, uint32_t segment, bool congested, bool held,
                uint64_t now) {
    (void)now;
    reader *r = context;
    buffer_hold(r->in.buffers, bytes);
    r->ring[r->filled % RING] = (train){bytes, length, segment, congested, held};
    __atomic_store_n(&r->filled, r->filled + 1, __ATOMIC_RELEASE);
}

static bool has_room(const reader *r) {
    return r->filled - __atomic_load_n(&r->taken, __ATOMIC_ACQUIRE) <= RING - RECEIVE_BATCH;
}

static bool stopping(const reader *r) { return __atomic_load_n(&r->stopping, __ATOMIC_ACQUIRE); }

/* From the sockets that have something. Returns whether there was any. */
static bool read_sockets(reader *r) {
    struct epoll_event events[READY_MAX];
    bool some = false;
    pthread_mutex_lock(&r->reading);
    const int count = epoll_wait(r->sockets, events, READY_MAX, 0);
    for (int i = 0; i < count && has_room(r); i++) some |= receive_batch(events[i].data.fd, &r->in, put, r) > 0;
    pthread_mutex_unlock(&r->reading);
    return some;
}

/* False: the loop is to go on. */
static bool read_on(reader *r) {
    if (!has_room(r)) {
        const struct timespec pause = {0, BEHIND_US * 1000};
        nanosleep(&pause, NULL);
        return true;
    }
    if (!inlet_refill(&r->in)) return false; /* all buffers are held; the loop has some that it copies out of */
    if (read_sockets(r)) return wake_loop(r), true;
    struct pollfd sockets = {.fd = r->sockets, .events = POLLIN};
    return poll(&sockets, 1, SETTLED_MS) > 0;
}

static void *run(void *context) {
    reader *r = context;
    prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
    prctl(PR_SET_NAME, "gradlane-rx");
    for (;;) {
        while (sem_wait(&r->go)) {}
        while (!stopping(r) && read_on(r)) {}
        if (stopping(r)) return NULL;
        __atomic_store_n(&r->owner, LOOP, __ATOMIC_RELEASE);
        wake_loop(r);
    }
}

/* Signals are for the process's other threads. */
static int start(reader *r) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&r->thread, NULL, run, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

reader *reader_new(int sockets, buffers *b) {
    reader *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->sockets = sockets, r->ready = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    sem_init(&r->go, 0, 0), pthread_mutex_init(&r->reading, NULL);
    buffers_use(b), r->in.buffers = b;
    if (r->ready >= 0 && !start(r)) return r;
    if (r->ready >= 0) close(r->ready);
    inlet_free(&r->in), free(r);
    return NULL;
}

void reader_free(reader *r) {
    if (!r) return;
    __atomic_store_n(&r->stopping, true, __ATOMIC_RELEASE);
    sem_post(&r->go);
    pthread_join(r->thread, NULL);
    for (; r->taken != r->filled; r->taken++) buffer_release(r->in.buffers, r->ring[r->taken % RING].bytes);
    close(r->ready), sem_destroy(&r->go), pthread_mutex_destroy(&r->reading);
    inlet_free(&r->in), free(r);
}

void reader_hand_over(reader *r) {
    __atomic_store_n(&r->owner, THREAD, __ATOMIC_RELEASE);
    sem_post(&r->go);
}

static bool has_some(const reader *r) { return __atomic_load_n(&r->filled, __ATOMIC_ACQUIRE) != r->taken; }

/* What it has read before it gave the sockets back is seen, too. */
bool reader_reads(const reader *r) { return __atomic_load_n(&r->owner, __ATOMIC_ACQUIRE) == THREAD || has_some(r); }

int reader_ready(const reader *r) { return r->ready; }

bool reader_sleeps(reader *r) {
    r->slept = true;
    __atomic_store_n(&r->asleep, true, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return !has_some(r) && __atomic_load_n(&r->owner, __ATOMIC_ACQUIRE) == THREAD;
}

bool reader_take(reader *r, take_train *take, void *context) {
    uint64_t count;
    if (r->slept) {
        r->slept = false;
        __atomic_store_n(&r->asleep, false, __ATOMIC_SEQ_CST);
        /* Nothing: something else has ended the sleep. If it is written only now, the next sleep is short. */
        if (read(r->ready, &count, sizeof count) < 0) count = 0;
    }
    /* Not when it was read: the engine has seen later times since, as it has sent. */
    const uint64_t now = gl_now();
    for (int i = 0; i < RECEIVE_BATCH && has_some(r); i++) {
        const train t = r->ring[r->taken % RING];
        __atomic_store_n(&r->taken, r->taken + 1, __ATOMIC_RELEASE);
        take(context, t.bytes, t.length, t.segment, t.congested, t.held, now);
        buffer_release(r->in.buffers, t.bytes);
    }
    return has_some(r);
}

void reader_let_go(reader *r) {
    pthread_mutex_lock(&r->reading);
    pthread_mutex_unlock(&r->reading);
}
