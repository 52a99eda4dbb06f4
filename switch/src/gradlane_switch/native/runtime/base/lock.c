/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"

#include <stdlib.h>

void gl_lock_init(gl_lock *lock) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

gl_lock *gl_lock_new(void) {
    gl_lock *lock = calloc(1, sizeof *lock);
    if (lock) {
        gl_lock_init(lock);
    }
    return lock;
}

void gl_lock_free(gl_lock *lock) {
    pthread_mutex_destroy(&lock->mutex);
    free(lock);
}
