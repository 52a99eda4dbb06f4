/* SPDX-License-Identifier: Apache-2.0
 * Two-rate three-colour meters (RFC 2698), colour-blind. */
#ifndef GL_METERS_H
#define GL_METERS_H

#include "base/counter.h"
#include "base/inline.h"
#include "state/api.h"

struct gl_meter {
    uint64_t cir, pir;                      /* units per second */
    unsigned __int128 cbs, pbs, tc, tp;     /* units * 1e9, so that rate * ns needs no division */
    uint64_t last;                          /* ns */
    uint32_t configured;
    gl_counter counts[3];                   /* by colour */
};

GL_INLINE void gl_refill(unsigned __int128 *tokens, unsigned __int128 burst, uint64_t rate, uint64_t elapsed) {
    unsigned __int128 filled = *tokens + (unsigned __int128)rate * elapsed;
    *tokens = filled < burst ? filled : burst;
}

enum { GL_GREEN = 0, GL_YELLOW = 1, GL_RED = 2 };

/* `units` are what the packet costs. */
GL_INLINE uint64_t gl_meter_colour(gl_meter *meter, uint32_t units, uint64_t now) {
    if (!meter->configured) {
        return GL_GREEN;
    }
    if (now > meter->last) {
        uint64_t elapsed = now - meter->last;
        gl_refill(&meter->tc, meter->cbs, meter->cir, elapsed);
        gl_refill(&meter->tp, meter->pbs, meter->pir, elapsed);
        meter->last = now;
    }
    unsigned __int128 cost = (unsigned __int128)units * 1000000000u;
    if (meter->tp < cost) {
        return GL_RED;
    }
    meter->tp -= cost;
    if (meter->tc < cost) {
        return GL_YELLOW;
    }
    meter->tc -= cost;
    return GL_GREEN;
}

/* The same, and counts a packet of `length` bytes for its colour. */
GL_INLINE uint64_t gl_meter_run(gl_meter *meter, uint32_t units, uint32_t length, uint64_t now) {
    uint64_t colour = gl_meter_colour(meter, units, now);
    gl_tally(&meter->counts[colour], length);
    return colour;
}

#endif
