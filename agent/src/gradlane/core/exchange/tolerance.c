/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The detector of critical phases.
 */
#include <math.h>
#include <string.h>

#include "exchange/tolerance.h"

#define ALL 1000000 /* ppm */

void gl_tolerance_new(gl_tolerance *t, double factor, double threshold, uint32_t window) {
    memset(t, 0, sizeof *t);
    t->factor = (uint32_t)(factor * 1e6 + 0.5), t->threshold = threshold, t->window = window;
    t->critical = window > 0;
    t->granted = ALL;
}

void gl_tolerance_grant(gl_tolerance *t, uint32_t part) { t->granted = part < ALL ? part : ALL; }

static void end_window(gl_tolerance *t) {
    const double norm = t->sum / t->steps;
    t->critical = fabs(norm - t->norm) > t->threshold * t->norm;
    t->norm = norm;
    t->sum = 0, t->steps = 0;
    t->windows++;
    t->critical_windows += t->critical;
}

void gl_tolerance_observe(gl_tolerance *t, uint32_t step, double squares) {
    if (!t->window) return;
    if (step != t->step) {
        /* A step that overflowed (mixed precision skips it) says nothing of the phase. */
        if (isfinite(t->squares) && t->squares > 0) t->sum += sqrt(t->squares), t->steps++;
        if (t->steps == t->window) end_window(t);
        t->step = step, t->squares = 0;
    }
    t->squares += squares;
}

uint32_t gl_tolerance_loss(const gl_tolerance *t, uint32_t loss) {
    const uint64_t granted = (uint64_t)loss * t->granted / ALL;
    return (uint32_t)(t->critical ? granted * t->factor / ALL : granted);
}
