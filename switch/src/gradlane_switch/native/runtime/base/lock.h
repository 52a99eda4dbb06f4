/* SPDX-License-Identifier: Apache-2.0
 * The lock between the forwarding thread, which takes it once per batch, and everything else, which holds it for one
 * update each. A priority-inheritance mutex: the kernel hands it to who waits, so a busy forwarder starves no writer,
 * and a writer that holds it runs with the forwarder's priority while the forwarder waits. Who has it may take it again:
 * several updates are made at once by holding it around them. */
#ifndef GL_LOCK_H
#define GL_LOCK_H

#include <pthread.h>

#include "base/api.h"

struct gl_lock {
    pthread_mutex_t mutex;
};

void gl_lock_init(gl_lock *lock);

static inline void gl_acquire(gl_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
}

/* Whether it was free, and is taken now. */
static inline int gl_try(gl_lock *lock) {
    return pthread_mutex_trylock(&lock->mutex) == 0;
}

static inline void gl_release(gl_lock *lock) {
    pthread_mutex_unlock(&lock->mutex);
}

#endif
