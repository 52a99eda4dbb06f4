/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Adaptive tolerance: how much loss training bears depends on its phase. In a critical phase, where the norm of the
 * gradient changes fast, little; otherwise all that the job tolerates (Agarwal et al., "Accordion", MLSys 2021, whose
 * detector this is). And no more than a controller leaves of it, which may see that less is needed.
 */
#ifndef GRADLANE_TOLERANCE_H
#define GRADLANE_TOLERANCE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    /* `factor` (ppm) of the job's tolerance holds in critical phases; `threshold`: relative change of the norm, from one
     * window of `window` steps to the next, from which a phase is critical. window == 0: switched off. */
    uint32_t factor, window;
    uint32_t granted; /* ppm of the job's tolerance, which holds in all phases */
    double threshold;
    bool critical;
    uint32_t step, steps;      /* the step that is being summed up; steps of the window that are over */
    double squares, sum;       /* of that step; of the window's norms */
    double norm;               /* mean of the last window; 0: none yet */
    uint64_t critical_windows, windows;
} gl_tolerance;

void gl_tolerance_new(gl_tolerance *tolerance, double factor, double threshold, uint32_t window);
/* Adds to the squared norm of a step's gradient; the step before is over with the first call for a later one. */
void gl_tolerance_observe(gl_tolerance *tolerance, uint32_t step, double squares);
/* Leaves that part (ppm) of the job's tolerance, all of it at most. */
void gl_tolerance_grant(gl_tolerance *tolerance, uint32_t part);
/* What of a tolerated loss (ppm) may be used in this phase. The first two windows are critical. */
uint32_t gl_tolerance_loss(const gl_tolerance *tolerance, uint32_t loss);

#endif
