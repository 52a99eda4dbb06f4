/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How often a worker was left out of a step, at an owner of parts.
 */
#ifndef GRADLANE_LEFT_OUT_H
#define GRADLANE_LEFT_OUT_H

#include <stdint.h>

/* Steps in which some tensor was reduced without the worker: since the job began, and of the latest gl_config.late_window. */
typedef struct {
    uint64_t steps;
    uint32_t recent;
} gl_left_out;

#endif
