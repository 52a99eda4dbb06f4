/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What operations tell.
 */
#ifndef GRADLANE_EVENTS_H
#define GRADLANE_EVENTS_H

#include <stdint.h>

#include "job/config.h"
#include "wire.h"

enum { GL_EVENT_COMPLETED = 1, GL_EVENT_LOST = 2, GL_EVENT_MISMATCH = 3, GL_EVENT_MISSED = 4, GL_EVENT_FAILED = 5, GL_EVENT_LATE = 6,
       GL_EVENT_OVER_BUDGET = 7 };

/* COMPLETED: the result of (step, tensor) is in `out`.
 * LOST: a push of (step, tensor) is over; `lost` has a bit set for each of its `slices` that did not count. None is told
 * of a push that arrived whole.
 * MISSED: the same of a pull, and of results that did not come. It is told before the operation is COMPLETED.
 * MISMATCH: `source` disagrees about the shape of (step, tensor); the operation can't complete. Told once of each source.
 * LATE: contributions to (step, tensor) wait here for this rank's own, and it may be left out (gl_submit without `in`).
 * OVER_BUDGET: `source` would be missing in more sums of (step, tensor) than its loss budget lets it, or some hosts have it in
 * a sum that others have without it; the step can't complete.
 * FAILED: memory is out; the engine does nothing any more. Told once, before all else. */
typedef struct gl_event {
    struct gl_event *next;
    uint32_t kind, step;
    uint16_t tensor, source;
    uint32_t first_slice, slices, lost_slices;
    uint8_t lost[];
} gl_event;

/* The operation that was submitted longest ago, but for standing ones, and whom it waits for: bit r of `missing` is rank r. Those whose
 * contribution has not begun to come; if there are none, those of whom the rest is missing; else those who owe a result. */
typedef struct {
    uint64_t age; /* us */
    uint32_t step;
    uint16_t tensor;
    uint64_t missing[GL_MAX_RANKS / 64];
    uint8_t direct; /* it is their own contributions, which wait for nobody, that have not begun to come */
} gl_waiting;

void gl_event_free(gl_event *event);

#endif
