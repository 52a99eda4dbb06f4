/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Both ends of the channel between a training process and its agent.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "channel/channel.h"

enum { CACHE_LINE = 64 };

typedef _Atomic uint32_t word;

typedef struct {
    _Alignas(CACHE_LINE) word head;  /* commands put into the ring: the client's */
    _Alignas(CACHE_LINE) word armed; /* the agent has found the ring empty, so the next command kicks */
    _Alignas(CACHE_LINE) word completions, listening;
    _Alignas(CACHE_LINE) word words[GL_SLOTS];
    gl_command commands[GL_SLOTS];
} shared;

size_t gl_channel_bytes(void) { return sizeof(shared); }

static void wait_while(word *at, uint32_t value, uint64_t us) {
    const struct timespec timeout = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    syscall(SYS_futex, at, FUTEX_WAIT, value, &timeout, NULL, 0);
}

static void wake_all(word *at) { syscall(SYS_futex, at, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

static void finish(shared *memory, unsigned slot, uint32_t how) {
    if (atomic_exchange(&memory->words[slot], how) == GL_WAITED) wake_all(&memory->words[slot]);
    atomic_fetch_add(&memory->completions, 1);
    if (atomic_exchange(&memory->listening, 0)) wake_all(&memory->completions);
}

/* The agent's end. */

struct gl_channel {
    shared *memory;
    int kicks;
    uint32_t tail;
    bool busy[GL_SLOTS]; /* a client that takes no notice of completions has no more in flight than others */
};

gl_channel *gl_channel_new(void *memory, int kicks) {
    gl_channel *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->memory = memory, c->kicks = kicks;
    atomic_store(&c->memory->armed, 1);
    return c;
}

void gl_channel_free(gl_channel *c) { free(c); }

int gl_channel_take(gl_channel *c, gl_command *command) {
    uint32_t waiting = atomic_load(&c->memory->head) - c->tail;
    if (!waiting) {
        atomic_store(&c->memory->armed, 1);
        waiting = atomic_load(&c->memory->head) - c->tail; /* one that came before it saw the flag did not kick */
        if (!waiting) return 0;
        atomic_store(&c->memory->armed, 0);
    }
    if (waiting > GL_SLOTS) return -1;
    memcpy(command, &c->memory->commands[c->tail++ % GL_SLOTS], sizeof *command);
    if (command->slot >= GL_SLOTS || c->busy[command->slot]) return -1;
    c->busy[command->slot] = true;
    return 1;
}

int gl_channel_kicked(const gl_channel *c) {
    char kicks[256];
    return read(c->kicks, kicks, sizeof kicks) == 0 ? -1 : 0;
}

void gl_channel_complete(gl_channel *c, unsigned slot, unsigned how) {
    c->busy[slot] = false;
    finish(c->memory, slot, how);
}

/* The client's end. */

struct gl_client {
    shared *memory;
    int kick;
    bool failed;
    pthread_mutex_t lock;
    unsigned free_count;
    uint16_t free_slots[GL_SLOTS];
};

gl_client *gl_client_new(void *memory, int kick) {
    gl_client *c = calloc(1, sizeof *c);
    if (!c || pthread_mutex_init(&c->lock, NULL)) return free(c), NULL;
    c->memory = memory, c->kick = kick;
    for (unsigned slot = GL_SLOTS; slot-- > 0;) c->free_slots[c->free_count++] = (uint16_t)slot;
    return c;
}

void gl_client_free(gl_client *c) {
    if (!c) return;
    close(c->kick);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

int gl_client_state(const gl_client *c, unsigned slot) { return (int)atomic_load(&c->memory->words[slot]); }

int gl_client_submit(gl_client *c, const gl_command *command) {
    pthread_mutex_lock(&c->lock);
    if (c->failed || !c->free_count) {
        pthread_mutex_unlock(&c->lock);
        return c->failed ? -2 : -1;
    }
    shared *m = c->memory;
    const uint16_t slot = c->free_slots[--c->free_count];
    atomic_store(&m->words[slot], GL_PENDING);
    const uint32_t head = atomic_load(&m->head);
    gl_command *entry = &m->commands[head % GL_SLOTS];
    *entry = *command;
    entry->slot = slot;
    atomic_store(&m->head, head + 1);
    pthread_mutex_unlock(&c->lock);
    /* A full pipe (EAGAIN) wakes the agent as well; that it is gone (EPIPE) is what the socket tells. */
    if (atomic_exchange(&m->armed, 0) && write(c->kick, "", 1) < 0) return slot;
    return slot;
}

unsigned gl_client_room(gl_client *c) {
    pthread_mutex_lock(&c->lock);
    const unsigned room = c->free_count;
    pthread_mutex_unlock(&c->lock);
    return room;
}

int gl_client_wait(gl_client *c, unsigned slot, uint64_t us) {
    word *at = &c->memory->words[slot];
    uint32_t state = GL_PENDING;
    if (!atomic_compare_exchange_strong(at, &state, GL_WAITED) && state >= GL_DONE) return (int)state;
    wait_while(at, GL_WAITED, us);
    return (int)atomic_load(at);
}

void gl_client_release(gl_client *c, unsigned slot) {
    pthread_mutex_lock(&c->lock);
    c->free_slots[c->free_count++] = (uint16_t)slot;
    pthread_mutex_unlock(&c->lock);
}

void gl_client_fail(gl_client *c) {
    pthread_mutex_lock(&c->lock);
    c->failed = true;
    pthread_mutex_unlock(&c->lock);
    for (unsigned slot = 0; slot < GL_SLOTS; slot++)
        if (gl_client_state(c, slot) < GL_DONE) finish(c->memory, slot, GL_FAILED);
    gl_client_look(c); /* even if nothing was in flight */
}

void gl_client_look(gl_client *c) {
    atomic_fetch_add(&c->memory->completions, 1);
    wake_all(&c->memory->completions);
}

uint32_t gl_client_completions(gl_client *c, uint32_t seen, uint64_t us) {
    atomic_store(&c->memory->listening, 1);
    if (atomic_load(&c->memory->completions) == seen) wait_while(&c->memory->completions, seen, us);
    return atomic_load(&c->memory->completions);
}
