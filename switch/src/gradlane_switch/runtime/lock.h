/* SPDX-License-Identifier: Apache-2.0
 * The lock between the forwarding thread and everything else. The forwarder takes it once per batch and yields to waiting
 * writers, which hold it for one update each. */
#ifndef GL_LOCK_H
#define GL_LOCK_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "runtime.h"

struct gl_lock {
    pthread_mutex_t mutex;
    atomic_int waiting;
};

static inline void gl_acquire(gl_lock *lock) {
    atomic_fetch_add(&lock->waiting, 1);
    pthread_mutex_lock(&lock->mutex);
    atomic_fetch_sub(&lock->waiting, 1);
}

static inline void gl_acquire_forwarder(gl_lock *lock) {
    while (atomic_load(&lock->waiting)) {
        sched_yield();
    }
    pthread_mutex_lock(&lock->mutex);
}

static inline void gl_release(gl_lock *lock) {
    pthread_mutex_unlock(&lock->mutex);
}

#endif
