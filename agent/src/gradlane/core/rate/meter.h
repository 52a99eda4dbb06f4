/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How fast bytes pass in windows without a pause.
 */
#ifndef GRADLANE_METER_H
#define GRADLANE_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "rate/link.h"

typedef struct {
    uint64_t begun, latest; /* of the window; bytes */
    double bytes;
    bool steady;            /* a whole window without a pause came before this one */
    unsigned count, next;
    double rates[GL_LINK_WINDOWS];
} meter;

/* `window`: us. A pause is half of that. */
void meter_count(meter *m, double bytes, uint64_t window, uint64_t now);
/* Returns how many there are. */
uint32_t meter_read(const meter *m, double *rates);

#endif
