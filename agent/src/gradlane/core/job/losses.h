/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What a job's configuration says of its ranks, its loss classes and its types.
 */
#ifndef GRADLANE_LOSSES_H
#define GRADLANE_LOSSES_H

#include <stdbool.h>

#include "job/config.h"

static inline unsigned ranks_of(const gl_config *c) { return c->workers + c->servers; }
static inline bool is_server(const gl_config *c) { return c->rank >= c->workers; }

/* Of the header's element_type. */
static inline unsigned type_of(uint8_t encoding) { return encoding & 15; }
static inline unsigned reduction_of(uint8_t encoding) { return encoding >> 4; }

static inline uint32_t budget_of(uint32_t loss_ppm, uint32_t slices) {
    return (uint32_t)((uint64_t)loss_ppm * slices / 1000000);
}
/* `loss_count`: it is in none. */
static inline uint32_t class_of(const gl_config *c, uint16_t layer) {
    uint32_t i = 0;
    while (i < c->loss_count && !(c->losses[i].first_layer <= layer && layer <= c->losses[i].last_layer)) i++;
    return i;
}
/* The most that may be lost of a push or a pull, parts per million. */
static inline uint32_t tolerated(const gl_config *c, uint32_t loss_class, bool pull) {
    if (loss_class == c->loss_count) return 0;
    return pull ? c->losses[loss_class].pull : c->losses[loss_class].push;
}

/* What of it is tolerated in a critical phase of the training. */
static inline uint32_t tolerated_critical(const gl_config *c, uint32_t loss) {
    return (uint32_t)((uint64_t)loss * c->critical / 1000000);
}

#endif
