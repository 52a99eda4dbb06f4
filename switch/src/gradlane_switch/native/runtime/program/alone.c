/* SPDX-License-Identifier: Apache-2.0
 * A program without ports: one packet in, its copies out. */
#include <stdlib.h>
#include <string.h>

#include "packets/host.h"
#include "packets/packet.h"
#include "packets/trace.h"
#include "program/api.h"
#include "state/state.h"

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

static gl_admission collector_enqueue(gl_host *host, gl_packet *packet, const void *state, size_t bytes,
                                      size_t room) {
    (void)host;
    (void)packet;
    (void)state;
    (void)bytes;
    (void)room;
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
