/* SPDX-License-Identifier: Apache-2.0
 * The benchmark's load on tables: frames through a program, one after the other, without ports. */
#include <time.h>

#include "program/program.h"

enum { LONGEST = 256 };

static gl_packet *no_copy(gl_host *host, const gl_packet *packet, uint32_t offset) {
    (void)host;
    (void)packet;
    (void)offset;
    return NULL;
}

static uint32_t no_depth(gl_host *host, const gl_packet *packet) {
    (void)host;
    (void)packet;
    return 0;
}

static gl_admission at_once(gl_host *host, gl_packet *packet, const void *state, size_t bytes, size_t room) {
    (void)host;
    (void)packet;
    (void)state;
    (void)bytes;
    (void)room;
    return GL_NOW;
}

static void emit(gl_host *host, gl_packet *packet) {
    (void)host;
    (void)packet;
}

static void discard(gl_host *host, gl_packet *packet, int by_program) {
    (void)host;
    (void)packet;
    (void)by_program;
}

/* Passes each of `count` frames of `length` bytes to the program once. Returns ns of the thread's time in all. */
uint64_t table_load(gl_process *process, gl_state *state, uint32_t port, const uint8_t *frames, uint32_t length,
                    uint32_t count) {
    static uint8_t memory[sizeof(gl_packet) + GL_HEADROOM + LONGEST] __attribute__((aligned(64)));
    gl_packet *packet = (gl_packet *)memory;
    gl_host host = {no_copy, no_depth, at_once, emit, discard, NULL};
    struct timespec start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (uint32_t i = 0; i < count; i++) {
        packet->data = packet->room + GL_HEADROOM;
        packet->length = length;
        packet->port = (uint16_t)port;
        memcpy(packet->data, frames + (size_t)i * length, length);
        process(state, packet, 1, &host);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return (uint64_t)(end.tv_sec - start.tv_sec) * 1000000000u + (uint64_t)(end.tv_nsec - start.tv_nsec);
}
