/* SPDX-License-Identifier: Apache-2.0
 * What Python sees of the base. (Each api.h is read by the compiler and by cffi alike, so: plain declarations only.) */
#ifndef GL_BASE_API_H
#define GL_BASE_API_H

#include <stdint.h>

/* Packets, and their bytes. */
typedef struct {
    uint64_t packets, bytes;
} gl_counter;

typedef struct gl_lock gl_lock;

/* NULL for want of memory. */
gl_lock *gl_lock_new(void);
void gl_lock_free(gl_lock *lock);

#endif
