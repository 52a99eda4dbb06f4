/* SPDX-License-Identifier: Apache-2.0
 * Events of packets that are traced, as they are written down. */
#ifndef GL_TRACE_H
#define GL_TRACE_H

#include <string.h>

#include "packets/packet.h"

GL_INLINE void gl_trace(gl_tracer *tracer, uint32_t kind, const uint64_t *head, uint32_t heads, const uint64_t *rest,
                        uint32_t rests) {
    if (!tracer) {
        return;
    }
    if (tracer->capacity - tracer->used < 1 + heads + rests) {
        tracer->lost++;
        return;
    }
    uint64_t *at = tracer->words + tracer->used;
    *at++ = (uint64_t)kind << 32 | (heads + rests);
    memcpy(at, head, heads * sizeof *at);
    memcpy(at + heads, rest, rests * sizeof *at);
    tracer->used += 1 + heads + rests;
}

#define GL_NOTE_WORDS(tracer, kind, words, count, ...)                                                                 \
    do {                                                                                                               \
        const uint64_t head_[] = {__VA_ARGS__};                                                                        \
        gl_trace(tracer, kind, head_, sizeof head_ / sizeof *head_, words, count);                                     \
    } while (0)
#define GL_NOTE(tracer, kind, ...) GL_NOTE_WORDS(tracer, kind, head_, 0, __VA_ARGS__)

GL_INLINE void gl_trace_packet(gl_tracer *tracer, const gl_packet *packet, uint64_t now) {
    uint64_t bytes[16] = {0};
    memcpy(bytes, packet->data, packet->length < sizeof bytes ? packet->length : sizeof bytes);
    GL_NOTE_WORDS(tracer, GL_TRACE_PACKET, bytes, 16, packet->traced, packet->port, now, packet->length);
}

#endif
