/* SPDX-License-Identifier: Apache-2.0
 * What generated programs are written in. */
#ifndef GL_PROGRAM_H
#define GL_PROGRAM_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/calculations.h"
#include "base/wide.h"
#include "packets/host.h"
#include "packets/packet.h"
#include "packets/trace.h"
#include "program/api.h"
#include "state/actions.h"
#include "state/state.h"

/* ---- Tracing: what a program says in it is compiled only with GL_TRACED ---- */

#ifdef GL_TRACED
static __thread gl_tracer *gl_traced;
#define GL_TRACE_TO(to) (gl_traced = (to))
#define GL_TRACE_START(packet, now) gl_trace_packet(gl_traced, packet, now)
#define GL_TRACE(kind, ...) GL_NOTE(gl_traced, kind, __VA_ARGS__)
#define GL_TRACE_WORDS(kind, words, count, ...) GL_NOTE_WORDS(gl_traced, kind, words, count, __VA_ARGS__)
#else
#define GL_TRACE_TO(...) ((void)0)
#define GL_TRACE_START(...) ((void)0)
#define GL_TRACE(...) ((void)0)
#define GL_TRACE_WORDS(...) ((void)0)
#endif

/* ---- The packet in hand ---- */

/* What a packet is to do when its pipeline ends, and its lengths in bytes. The lists count from 1; 0 is none. */
typedef struct {
    uint32_t length;         /* as it entered ingress: what counters and meters count */
    uint32_t size;           /* v1model's packet_length: and what headers have been added since, less those removed */
    uint32_t limit;          /* of truncate */
    uint16_t clone;          /* session, with GL_CLONED set */
    uint16_t clone_fields, resubmit, recirculate, digest;
    uint16_t passes;         /* how often it and its copies have come back by now */
    uint8_t failed;          /* an assertion: the packet is to be dropped */
} gl_marks;

enum { GL_CLONED = 0x8000 };

#endif
