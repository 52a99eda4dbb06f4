/* SPDX-License-Identifier: Apache-2.0
 * What programs under ThreadSanitizer have in common: all of a job in one process, each host at a loopback port. */
#ifndef THREADS_H
#define THREADS_H

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "exchange/exchange.h"
#include "io/clock.h"

static inline void require(int holds, const char *what) {
    if (!holds) fprintf(stderr, "%s\n", what), exit(1);
}

/* A socket of its own; `at` gets its address. */
static inline int open_socket(struct sockaddr_storage *at) {
    struct sockaddr_in *address = (struct sockaddr_in *)at;
    socklen_t length = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    require(!bind(fd, (struct sockaddr *)address, sizeof *address), "bind");
    getsockname(fd, (struct sockaddr *)address, &length);
    return fd;
}

static inline void *channel_memory(void) {
    void *memory = aligned_alloc(4096, (gl_channel_bytes() + 4095) / 4096 * 4096);
    require(memory != NULL, "memory");
    return memset(memory, 0, gl_channel_bytes());
}

static inline void *serve(void *runner) {
    require(!gl_runner_run(runner), "run");
    return NULL;
}

/* Until it is over. */
static inline void wait_for(gl_client *client, int slot) {
    require(slot >= 0, "submit");
    int state;
    while ((state = gl_client_wait(client, (unsigned)slot, 1000000)) < GL_DONE) {}
    require(state == GL_DONE, "failed");
    gl_client_release(client, (unsigned)slot);
}

#endif
