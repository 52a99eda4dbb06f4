/* SPDX-License-Identifier: Apache-2.0
 * A program's state as a whole, and a switch without ports. */
#include <stdlib.h>

#include "base/lock.h"
#include "state/mailbox.h"
#include "program/program.h"

gl_lock *gl_lock_new(void) {
    gl_lock *lock = calloc(1, sizeof *lock);
    if (!lock) {
        return NULL;
    }
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return lock;
}

void gl_lock_free(gl_lock *lock) {
    pthread_mutex_destroy(&lock->mutex);
    free(lock);
}

static void *array_of(uint32_t count, size_t size) {
    return calloc(count ? count : 1, size);
}

gl_state *gl_state_new(gl_lock *lock, uint32_t tables, uint32_t counters, uint32_t meters, uint32_t registers) {
    gl_state *state = calloc(1, sizeof *state);
    if (!state) {
        return NULL;
    }
    *state = (gl_state){
        .lock = lock, .table_count = tables, .counter_count = counters, .meter_count = meters,
        .register_count = registers, .random = 0x9e3779b97f4a7c15u, .cpu_port = GL_PORTS,
        .mailbox = {.event_fd = -1}, .post = gl_post,
    };
    state->tables = array_of(tables, sizeof *state->tables);
    state->counters = array_of(counters, sizeof *state->counters);
    state->meters = array_of(meters, sizeof *state->meters);
    state->registers = array_of(registers, sizeof *state->registers);
    state->groups = array_of(GL_GROUPS, sizeof(gl_group *));
    state->sessions = array_of(GL_SESSIONS, sizeof(gl_group *));
    if (!state->tables || !state->counters || !state->meters || !state->registers || !state->groups ||
        !state->sessions) {
        gl_state_free(state);
        return NULL;
    }
    return state;
}

void gl_state_free(gl_state *state) {
    for (uint32_t i = 0; state->tables && i < state->table_count; i++) {
        gl_table_free(&state->tables[i]);
    }
    for (uint32_t i = 0; state->counters && i < state->counter_count; i++) {
        free(state->counters[i].cells);
    }
    for (uint32_t i = 0; state->meters && i < state->meter_count; i++) {
        free(state->meters[i].cells);
    }
    for (uint32_t i = 0; state->registers && i < state->register_count; i++) {
        free(state->registers[i].cells);
    }
    for (uint32_t i = 0; state->groups && i < GL_GROUPS; i++) {
        free(state->groups[i]);
    }
    free(state->tables);
    free(state->counters);
    free(state->meters);
    free(state->registers);
    for (uint32_t i = 0; state->sessions && i < GL_SESSIONS; i++) {
        free(state->sessions[i]);
    }
    free(state->groups);
    free(state->sessions);
    gl_mailbox_clear(&state->mailbox);
    free(state);
}

int gl_state_counter(gl_state *state, uint32_t index, uint32_t size) {
    state->counters[index].cells = array_of(size, sizeof(gl_counter));
    state->counters[index].size = size;
    return state->counters[index].cells ? 0 : -1;
}

int gl_state_meter(gl_state *state, uint32_t index, uint32_t size, uint32_t counts_bytes) {
    state->meters[index].cells = array_of(size, sizeof(gl_meter));
    state->meters[index].size = size;
    state->meters[index].counts_bytes = counts_bytes;
    return state->meters[index].cells ? 0 : -1;
}

int gl_state_register(gl_state *state, uint32_t index, uint32_t size, uint32_t words) {
    state->registers[index].cells = array_of(size, sizeof(uint64_t) * words);
    state->registers[index].size = size;
    state->registers[index].words = words;
    return state->registers[index].cells ? 0 : -1;
}

/* ---- Without ports ---- */

typedef struct {
    gl_host host;
    gl_sent *sent;
    uint32_t capacity, count;
    uint8_t *out;
    uint32_t out_size, out_used;
    int failed;
} gl_collector;

static gl_packet *new_packet(uint32_t frame_size) {
    gl_packet *packet = malloc(sizeof *packet + GL_HEADROOM + frame_size);
    return packet ? gl_fresh(packet) : NULL;
}

static gl_packet *collector_copy(gl_host *host, const gl_packet *packet, uint32_t offset) {
    gl_collector *collector = (gl_collector *)host;
    gl_packet *copy = new_packet(packet->length - offset);
    if (!copy) {
        collector->failed = 1;
        return NULL;
    }
    copy->port = packet->port;
    copy->length = packet->length - offset;
    memcpy(copy->data, packet->data + offset, copy->length);
    return copy;
}

static uint32_t collector_depth(gl_host *host, const gl_packet *packet) {
    (void)host;
    (void)packet;
    return 0;
}

static gl_admission collector_enqueue(gl_host *host, gl_packet *packet, const void *state, size_t bytes) {
    (void)host;
    (void)packet;
    (void)state;
    (void)bytes;
    return GL_NOW;
}

static void collector_emit(gl_host *host, gl_packet *packet) {
    gl_collector *collector = (gl_collector *)host;
    GL_NOTE(host->tracer, GL_TRACE_SENT, packet->out, packet->queue, packet->length);
    if (collector->count == collector->capacity || packet->length > collector->out_size - collector->out_used) {
        collector->failed = 1;
    } else {
        collector->sent[collector->count++] = (gl_sent){packet->out, packet->queue, packet->length, collector->out_used};
        memcpy(collector->out + collector->out_used, packet->data, packet->length);
        collector->out_used += packet->length;
    }
    free(packet);
}

static void collector_discard(gl_host *host, gl_packet *packet, int by_program) {
    (void)host;
    (void)by_program;
    free(packet);
}

int gl_process_one(gl_process *process, gl_state *state, uint32_t port, const uint8_t *frame, uint32_t length,
                   uint64_t now, gl_sent *sent, uint32_t capacity, uint8_t *out, uint32_t out_size, gl_tracer *tracer) {
    gl_collector collector = {
        .host = {collector_copy, collector_depth, collector_enqueue, collector_emit, collector_discard, tracer},
        .sent = sent, .capacity = capacity, .out = out, .out_size = out_size,
    };
    gl_packet *packet = new_packet(length);
    if (!packet) {
        return -1;
    }
    packet->port = (uint16_t)port;
    packet->length = length;
    memcpy(packet->data, frame, length);
    gl_acquire(state->lock);
    process(state, packet, now, &collector.host);
    gl_release(state->lock);
    return collector.failed ? -1 : (int)collector.count;
}
