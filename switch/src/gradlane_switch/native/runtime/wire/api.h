/* SPDX-License-Identifier: Apache-2.0
 * What Python sees of links: what they do to packets. */
#ifndef GL_WIRE_API_H
#define GL_WIRE_API_H

#include "base/api.h"

/* Gilbert-Elliott: per packet, the chances to go from the good state to the bad one and back, and of loss in each. */
typedef struct {
    double enter, leave, bad, good;
} gl_burst_loss;

/* What a link does to packets. Probabilities 0..1; times in ns. */
typedef struct {
    double loss;
    gl_burst_loss burst_loss;
    double reorder;          /* share of packets held back by `reorder_delay` more */
    double duplicate;
    double corrupt;          /* share of packets that get one wrong bit */
    uint64_t delay;
    uint64_t jitter;         /* uniform in [0, jitter) on top of the delay */
    uint64_t reorder_delay;
} gl_impairment;

typedef struct {
    gl_counter lost, duplicated;
    uint64_t corrupted, delayed, reordered;
    uint64_t in_flight;      /* packets on the link now, or just come from it */
} gl_impaired;

#endif
