/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The paths that traces took.
 */
#ifndef GRADLANE_PATH_H
#define GRADLANE_PATH_H

#include <stdint.h>

#include "wire.h"

enum { GL_PATHS = 8 };

/* What a switch told in a trace: its ports, and the queue that the trace has left: depth in units of `depth_unit` bytes
 * (0: packets), ns of waiting. Colour of the port's virtual queue: 0 green, 1 yellow, above that red. */
typedef struct {
    uint16_t switch_id, ingress_port, egress_port;
    uint8_t queue_class, color, depth_unit;
    uint32_t depth, wait;
} gl_hop;

/* A path through the fabric, how many traces took it, and what the latest of them met, in its order. */
typedef struct {
    uint64_t count;
    uint8_t hops;
    gl_hop hop[GL_MAX_HOPS];
} gl_path;

#endif
